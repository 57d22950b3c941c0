package nfs

import (
	"encoding/binary"
	"hash/crc32"
)

// SignHandle makes a handle's checksum right.
func SignHandle(h []byte) []byte {
	binary.BigEndian.PutUint32(h[sumOff:], crc32.ChecksumIEEE(h[:sumOff]))
	return h
}

// CookieOf is where a name stands in its folder.
var CookieOf = cookieOf
