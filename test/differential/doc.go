// Package differential compares decamp with other programs. Other programs write images, and decamp and other programs
// read them. Each reader must read the content that was written. A difference that is not in explained_test.go and in
// docs/formats/vmdk.md is an error.
//
//	writers  qemu-img in all subformats and with backing files, VMDKstream, govmomi
//	readers  decamp from a file and from a pipe, qemu-img, libvmdk, libqcow, dissect, 7-Zip
//
// The seed determines content, size and options. A test run uses the first few seeds, or the first N with
// DECAMP_DIFFERENTIAL=N.
package differential
