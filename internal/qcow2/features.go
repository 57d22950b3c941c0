package qcow2

import (
	"encoding/binary"
	"strings"

	"github.com/decamp/decamp/internal/fault"
)

// Incompatible features, by bit.
const (
	featureDirty       = 1 << 0 // refcounts are out of date
	featureCorrupt     = 1 << 1 // qemu found damage; the image must be repaired before it is used
	featureDataFile    = 1 << 2 // guest data is in another file
	featureCompression = 1 << 3 // compressed clusters use another algorithm than zlib
	featureExtendedL2  = 1 << 4 // L2 entries have 16 bytes, for 32 subclusters

	featuresKnown = featureDirty | featureCompression | featureExtendedL2 // features that a reader here supports
)

// A compression is the algorithm of all compressed clusters of an image. Its values are those of the
// header.
type compression uint8

const (
	zlib compression = iota // raw deflate
	zstd                    // Zstandard, RFC 8878
)

// String returns "zlib" or "zstd".
func (c compression) String() string {
	if c == zstd {
		return "zstd"
	}
	return "zlib"
}

// checkBase checks the fields that determine whether the rest of the header can be parsed: version,
// encryption, length.
func checkBase(p filePath, b []byte) error {
	be := binary.BigEndian
	version := be.Uint32(b[4:])
	switch {
	case version < 2 || version > 3:
		return p.unsupported("version %d is not known", version)
	case be.Uint32(b[32:]) != 0:
		return p.encryptedError()
	case version == 3 && (len(b) < headerV3 || be.Uint32(b[100:]) < headerV3):
		return p.corrupt("its header is shorter than %d bytes", headerV3)
	}
	return nil
}

// encryptedError returns the error for an encrypted image, with the command that decrypts it.
func (p filePath) encryptedError() error {
	source := "driver=qcow2,encrypt.key-secret=key,file.driver=file,file.filename=" + strings.ReplaceAll(string(p), ",", ",,")
	return fault.New(fault.Unsupported, "it is encrypted").
		WithHint("make a plain copy, with its password in a file: qemu-img convert --object secret,id=key,file=PASSWORDFILE --image-opts %s -O qcow2 %s",
			fault.Quote(source), (p + ".plain").shellQuoted())
}

// readFeatures stores the incompatible features of a version 3 header. It fails if this package does
// not support one of them.
func (h *header) readFeatures(p filePath, b []byte) error {
	features := binary.BigEndian.Uint64(b[72:])
	h.dirty = features&featureDirty != 0
	h.extendedL2 = features&featureExtendedL2 != 0
	switch {
	case features&featureCorrupt != 0:
		return fault.New(fault.Corrupt, "qemu marked it as corrupt").
			WithHint("keep a copy of the file, then: qemu-img check -r all %s", p.shellQuoted())
	case features&featureDataFile != 0:
		return p.unsupported("its data is in another file")
	case features&^featuresKnown != 0:
		return p.unsupported("it has features that are not known (bits %#x)", features&^featuresKnown)
	case features&featureCompression != 0:
		return h.readCompression(p, b)
	}
	return nil
}

// readCompression stores the compression type, which follows the first 104 bytes of the header.
func (h *header) readCompression(p filePath, b []byte) error {
	if h.length <= headerV3 || len(b) <= headerV3 {
		return p.corrupt("its header has %d bytes, too few to name its compression", h.length)
	}
	h.compression = compression(b[headerV3])
	if h.compression > zstd {
		return p.unsupported("its compression, type %d, is not known", h.compression)
	}
	return nil
}
