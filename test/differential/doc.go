// Package differential compares decamp with other programs: images that others write are read
// by decamp and by others, and every reader must see the disk that was written. A difference
// that is not explained in explained_test.go, and in docs/formats/vmdk.md, is an error.
//
//	writers  qemu-img in all subformats and with backing files, VMDKstream, govmomi
//	readers  decamp from a file and from a pipe, qemu-img, libvmdk, libqcow, dissect, 7-Zip
//
// Content, size and options are random by seed. A test run takes the first few seeds;
// DECAMP_DIFFERENTIAL=N takes N of them.
package differential
