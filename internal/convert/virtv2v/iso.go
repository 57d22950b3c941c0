package virtv2v

import (
	"encoding/binary"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/fault"
)

// An ISO image is parsed according to ECMA-119: volume descriptors from sector 16 on, folders as runs of
// records. Joliet's tree is preferred if it exists, because the primary one truncates names.
const (
	isoSector      = 2048     // bytes of a sector
	isoFirst       = 16       // sector of the first volume descriptor
	isoDescriptors = 64       // volume descriptors that are read
	maxISOFolder   = 4 << 20  // bytes of one folder
	maxISOBytes    = 64 << 20 // bytes of all folders
	maxFiles       = 200_000  // files; a virtio-win has about 5,000
	maxDepth       = 12       // nested folders
)

// isoFiles returns the paths of the files in an ISO image, in lower case, with slashes.
func isoFiles(r io.ReaderAt) ([]string, error) {
	root, joliet, err := isoRoot(r)
	if err != nil {
		return nil, err
	}
	w := &isoWalk{r: r, joliet: joliet, left: maxISOBytes, seen: map[uint32]bool{}}
	err = w.walkFolder(root, "", 0)
	return w.files, err
}

// isoRoot returns the record of the root folder. joliet is true if its names are UTF-16.
func isoRoot(r io.ReaderAt) (root isoRecord, joliet bool, err error) {
	found := false
	sector := make([]byte, isoSector)
	for i := range int64(isoDescriptors) {
		if _, err := r.ReadAt(sector, (isoFirst+i)*isoSector); err != nil || string(sector[1:6]) != "CD001" {
			break
		}
		// Type 1 is the primary descriptor; type 2 with one of these escape sequences is Joliet.
		kind, escapes := sector[0], string(sector[88:91])
		isJoliet := kind == 2 && (escapes == "%/@" || escapes == "%/C" || escapes == "%/E")
		if kind != 1 && !isJoliet || joliet {
			continue
		}
		if record, ok := parseRecord(sector[156:190]); ok {
			root, joliet, found = record, isJoliet, true
		}
	}
	if !found {
		return root, false, fault.New(fault.Corrupt, "it is not an ISO 9660 image")
	}
	return root, joliet, nil
}

// An isoRecord is an entry of a folder.
type isoRecord struct {
	sector, size uint32 // first sector, and length in bytes
	folder       bool   // the entry is a folder
	name         []byte // encoded name, with a version after a semicolon
	length       int    // bytes of the record
}

// parseRecord parses the record that p begins with; ok is false if it is invalid.
func parseRecord(p []byte) (isoRecord, bool) {
	const fixed = 33
	if len(p) < fixed {
		return isoRecord{}, false
	}
	r := isoRecord{sector: binary.LittleEndian.Uint32(p[2:]), size: binary.LittleEndian.Uint32(p[10:]), folder: p[25]&2 != 0, length: int(p[0])}
	if r.length < fixed || r.length > len(p) || fixed+int(p[32]) > r.length {
		return isoRecord{}, false
	}
	r.name = p[fixed : fixed+int(p[32])]
	return r, true
}

// An isoWalk collects the files of all folders. It visits each folder once.
type isoWalk struct {
	r      io.ReaderAt     // image
	joliet bool            // names are UTF-16
	left   int64           // bytes of folders that may still be read
	seen   map[uint32]bool // first sectors of visited folders
	files  []string        // paths found so far
}

// walkFolder adds the files below a folder. It fails if the folder exceeds a limit or is within itself.
func (w *isoWalk) walkFolder(f isoRecord, path string, depth int) error {
	if w.left -= int64(f.size); f.size > maxISOFolder || w.left < 0 || depth > maxDepth || w.seen[f.sector] {
		return fault.New(fault.Corrupt, "its folder %q is too large, or contains itself", path)
	}
	w.seen[f.sector] = true
	data := make([]byte, f.size)
	if n, err := w.r.ReadAt(data, int64(f.sector)*isoSector); err != nil && (err != io.EOF || n < len(data)) {
		return fault.New(fault.Corrupt, "its folder %q cannot be read: %w", path, err)
	}
	for len(data) > 0 {
		if data[0] == 0 { // records do not cross the end of a sector
			data = data[min(len(data), (len(data)-1)%isoSector+1):]
			continue
		}
		r, ok := parseRecord(data)
		if !ok {
			return fault.New(fault.Corrupt, "its folder %q has a bad record", path)
		}
		data = data[r.length:]
		if err := w.addEntry(r, path, depth); err != nil {
			return err
		}
	}
	return nil
}

// addEntry adds a file, or the files below a folder.
func (w *isoWalk) addEntry(r isoRecord, path string, depth int) error {
	if len(r.name) == 1 && r.name[0] < 2 {
		return nil // itself, and the folder above
	}
	name, _, _ := strings.Cut(w.decodeName(r.name), ";")
	path = strings.TrimPrefix(path+"/"+strings.ToLower(strings.TrimRight(name, ".")), "/")
	if r.folder {
		return w.walkFolder(r, path, depth+1)
	}
	if len(w.files) == maxFiles {
		return fault.New(fault.Unsupported, "it has more than %d files", maxFiles)
	}
	w.files = append(w.files, path)
	return nil
}

// decodeName decodes a name.
func (w *isoWalk) decodeName(name []byte) string {
	if !w.joliet {
		return string(name)
	}
	var units []uint16
	for i := 0; i+1 < len(name); i += 2 {
		units = append(units, binary.BigEndian.Uint16(name[i:]))
	}
	return string(utf16.Decode(units))
}
