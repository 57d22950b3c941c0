package nfs

import (
	"encoding/binary"
	"hash/crc32"
)

// SignHandle sets the checksum of a handle.
func SignHandle(h []byte) []byte {
	binary.BigEndian.PutUint32(h[sumOff:], crc32.ChecksumIEEE(h[:sumOff]))
	return h
}

// CookieOf is exported for tests.
var CookieOf = cookieOf
