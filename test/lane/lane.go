// Package lane separates the tests of make test from those of make test-slow. make test verifies each
// behaviour once, with the real program. make test-slow has the build tag slow and runs the same tests with
// all variants, repetitions and controls.
package lane
