// Package nfcplugin is the logic of the nbdkit plugin "nfc": it serves one disk of a VM on an ESXi host or
// a vCenter. cmd/nbdkit-nfc-plugin connects it to nbdkit. The package itself needs no cgo.
//
// # How a read works
//
//	nbdkit -> Export.ReadAt -> readahead.File -> transport nfc or https -> the host
//
// All NBD connections share one Export, with one login and one cache. The transport opens several
// sessions for the disk, and replaces those that break: the retry filter is not needed.
//
// # Identity of the server
//
// The first of these that is set decides: the thumbprint; the file of known hosts, which pins the
// certificate at its first use; insecure=true, with a warning; the certificate authorities of the
// system. Later connections must present the same certificate.
//
// # Memory
//
// The cache has 28 MiB (readahead.ExportOptions). The transport has at most 1.25 MiB for each session: 5 MiB
// with 4 sessions, 20 MiB with 16. The sum is at most 48 MiB.
package nfcplugin
