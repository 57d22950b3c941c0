// Package advise estimates the limit of a disk's copy and the effect of changes, with a
// confidence. It fits a small model of a disk's path to measured rows.
//
// A MiB passes layers, and each layer takes some time, in seconds per MiB:
//
//	source       reading it from what the datastore lies on
//	host         the ESXi host handing it on: its clone, NFS client and TCP
//	wire         the NIC's speed, less what framing and answers cost
//	destination  writing it to what the image lies on
//	commit       every write waiting for the medium, on an export that is sync
//
// Layers overlap, but not wholly: the clone reads, then sends, with few requests in
// flight, while a server that answers before it writes is nearly independent of its
// disk. So
//
//	sending = (source^p + host^p + wire^p)^(1/p)
//	async   = (sending^q + destination^q)^(1/q)
//	sync    = async + writes/MiB * commit
//
// where 1 is one after the other and infinity "the slowest alone decides". A frame of
// 9000 bytes makes host and wire take a fixed part less. Nothing else is in it: no
// caches, no other load.
package advise
