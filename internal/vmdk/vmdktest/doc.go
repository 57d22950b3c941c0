// Package vmdktest makes VMDK disks for tests: every flavour, chains of them, and beside
// each what it must read as. Only tests and benchmarks import it.
//
// It is written from the published layouts and shares no helper, constant or struct with
// the readers in package vmdk: a mistake made in both would have to be made twice. Every
// offset stands here as a number on purpose.
//
// # Terms
//
// A Chain is the recipe: a seed, and layers from the base up. Write makes its files in a
// folder and returns a Disk: the name to open and the Overlay, which knows for every
// sector which layer wrote it last. The Overlay is computed from the recipe beside the
// files, never from them. The same recipe gives the same bytes.
//
// What a layer holds is decided grain by grain: data, zero, unmapped or absent, in the
// shares the layer asks for. Contents are arithmetic (see content.go), so a chain of many
// GiB needs one byte of memory for each sector and four for each grain.
//
// Sectors past the end of a disk, which the last grain of a file may have, are filled with
// garbage: a reader that forgets to clip shows.
package vmdktest
