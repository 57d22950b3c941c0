// Package vmdktest creates VMDK disks for tests: every format, chains of them, and the expected
// content of each. Only tests and benchmarks import it.
//
// It is written from the published layouts. It shares no function, constant or type with package
// vmdk, because a mistake in shared code would not be detected. Therefore offsets are literal
// numbers.
//
// # Terms
//
// A Chain is a recipe: a seed, and layers from the base up. Write creates its files in a folder and
// returns a Disk: the name to open, and the Overlay, which records for every sector the layer that
// wrote it last. The Overlay is computed from the recipe and never from the files. The same recipe
// always creates the same bytes.
//
// Each grain of a layer is data, zero, unmapped or absent, in the shares of the layer. Contents
// are computed (see content.go), so a chain of many GiB needs one byte of memory for each sector
// and four for each grain.
//
// Sectors after the end of a disk, which the last grain of a file may contain, are filled with
// garbage, which detects a reader that does not clip.
package vmdktest
