package differential

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
)

// A difference is a known case in which a reader does not read the content that was written. docs/formats/vmdk.md has the
// same list.
type difference struct {
	reader       string
	why          string
	wrongContent bool // whether it reads wrong content; if false, it returns an error
	matches      func(c testCase) bool
}

var knownDifferences = []difference{
	{"decamp", "the disk names a parent without a name, and its grains are not where its tables say: refused", false, writtenBy("govmomi")},
	{pipeReader, "as from a file", false, writtenBy("govmomi")},
	{"qemu-img", "zeros for grains that it does not find, no error", true, writtenBy("govmomi")},
	{"qemu-img", "an error, for some disks", false, writtenBy("govmomi")},
	{"7-Zip", "refused", false, writtenBy("govmomi")},
	{"libvmdk", "refused", false, writtenBy("govmomi")},
	{"dissect", "refused", false, writtenBy("govmomi")},

	{"dissect", "IndexError at the end of a disk that fills no grain", false, func(c testCase) bool { return c.writer.format == "vmdk" && c.disk.size%grain != 0 }},
	{"7-Zip", "refuses streams of qemu-img, which have no end marker", false, func(c testCase) bool { return strings.HasPrefix(c.writer.name, "qemu-img streamOptimized") }},
	{"7-Zip", "a last grain that is shorter than a grain is a data error", false, func(c testCase) bool { return c.writer.name == "VMDKstream" && c.disk.size%grain != 0 }},
	{"libvmdk", "refuses the descriptor of VMDKstream", false, writtenBy("VMDKstream")},
	{"libqcow", "knows neither subclusters nor zstd", false, func(c testCase) bool { return c.qcow2Features()&(extendedL2|otherCompression) != 0 }},
	{"7-Zip", "knows no zstd", false, func(c testCase) bool { return c.qcow2Features()&otherCompression != 0 }},
	{"dissect", "knows no zstd as it is installed", false, func(c testCase) bool { return c.qcow2Features()&otherCompression != 0 }},
	{"dissect", "no end with a qcow2 disk that fills no cluster", false, func(c testCase) bool { return c.writer.name == "qemu-img" && c.disk.size%grain != 0 }},
	{"libqcow", "refuses raw backing files", false, func(c testCase) bool { return c.hasFile("base.raw") }},
	{"libqcow", "clusters of zeros fall through to the backing file", true, writtenBy("qemu-img chain")},
	{"dissect", "an error, or no end, with backing files", false, writtenBy("qemu-img chain")},
}

func writtenBy(writer string) func(testCase) bool {
	return func(c testCase) bool { return c.writer.name == writer }
}

// Incompatible features of qcow2 images.
const (
	otherCompression = 1 << 3
	extendedL2       = 1 << 4
)

// qcow2Features returns the incompatible features of all qcow2 images of the case.
func (c testCase) qcow2Features() (all uint64) {
	names, _ := filepath.Glob(filepath.Join(filepath.Dir(c.path), "*")) // the pattern is valid
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err == nil && len(b) >= 80 && bytes.HasPrefix(b, []byte("QFI\xfb\x00\x00\x00\x03")) {
			all |= binary.BigEndian.Uint64(b[72:])
		}
	}
	return all
}

// hasFile reports whether the folder of the image contains a file.
func (c testCase) hasFile(name string) bool {
	_, err := os.Stat(filepath.Join(filepath.Dir(c.path), name))
	return err == nil
}
