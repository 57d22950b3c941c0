// Package xdr encodes and decodes the External Data Representation of RFC 4506, as far
// as ONC RPC, NFSv3, MOUNT and the port mapper use it: integers of 4 and 8 bytes, booleans,
// opaque data and strings, all big-endian and padded to multiples of 4 bytes.
//
// A Decoder reads from a stream, so that the payload of a WRITE need not be in memory
// before its destination is known. It keeps its first error: a caller decodes a structure
// field by field and checks the error once. The caller bounds every length.
package xdr
