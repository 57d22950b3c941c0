// Package image is one disk in a file on our side: raw or qcow2, with its manifest
// beside it.
//
// # Terms
//
// An image is unfinished until its target was finished and its manifest sealed; a Job
// says which disk it is to hold and brings it there, over as many attempts as it takes.
// A Place is where the image is opened: File is one on a file system.
//
// # What is promised
//
// A manifest never lists a chunk that the image may not hold:
//
//	image    manifest             then
//	new      any                  the manifest is made anew
//	there    of this disk         what it lists is trusted, after a sample was checked
//	there    of another, damaged  it is made anew, and everything is copied again
//	there    none                 likewise
//	smaller  of this disk, which  both grow: the image, then the manifest
//	         was smaller, too
//
// The image is finished first and the manifest sealed after that, so a sealed manifest
// says that the image beside it is finished. A finished image is not opened for writing
// again: that would make it an unfinished one beside a manifest that says otherwise,
// should a crash come then. (One whose disk grew is: its manifest is of a smaller disk, and
// says nothing of this one until it grew, too, which opens it again. One whose tables are
// damaged is, by Verify, which finds such an image to be damaged, too.)
package image
