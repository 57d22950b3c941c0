// Package image fills and verifies the image of one disk: a raw or qcow2 file with its manifest
// beside it.
//
// # Terms
//
// An image is unfinished until its target is finished and its manifest sealed. A Job describes
// the disk and fills the image, with as many attempts as necessary. A Opener opens the image; File
// is a Opener on a file system.
//
// # Guarantees
//
// A manifest never lists a chunk that the image may not contain:
//
//	image    manifest             action
//	new      any                  the manifest is replaced by an empty one
//	exists   of this disk         listed chunks are used, after a sample was checked
//	exists   of another, damaged  the manifest is replaced, and the whole disk is copied
//	exists   missing              likewise
//	smaller  of this disk, which  both are enlarged: the image, then the manifest
//	         was smaller, too
//
// The image is finished before the manifest is sealed. Therefore the image beside a sealed
// manifest is finished. A finished image is not opened for writing again, because a crash would
// leave an unfinished image beside a sealed manifest. There are two exceptions. If the disk has
// grown, the manifest belongs to the smaller disk, and its own growth opens it again. If Verify
// finds damaged tables, it makes the image unfinished, and finds it damaged again after a crash.
package image
