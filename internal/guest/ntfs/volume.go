package ntfs

import (
	"fmt"
	"math/bits"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/guest/tree"
)

// maxBitmap limits the bytes read to count free clusters: enough for 512 GiB in clusters of 4 KiB.
const maxBitmap = 16 << 20

// Info is the description in a volume's metadata.
type Info struct {
	Label   string
	Version string // version of NTFS: "3.1" since Windows XP
	Dirty   bool   // Windows means to check it when it starts
}

// Info reads the record of the volume.
func (v *Volume) Info() (Info, error) {
	v.reads = 0
	r, err := v.record(recordVolume)
	if err != nil {
		return Info{}, fmt.Errorf("$Volume: %w", err)
	}
	var info Info
	if name, ok := r.first(typeVolumeName, ""); ok {
		info.Label = string(utf16.Decode(units(name.value)))
	}
	about, ok := r.first(typeVolumeInfo, "")
	if !ok || len(about.value) < 12 {
		return Info{}, fmt.Errorf("$Volume: %w: the volume's information is missing", errCorrupt)
	}
	const dirty = 1
	info.Version = fmt.Sprintf("%d.%d", about.value[8], about.value[9])
	info.Dirty = le16(about.value, 10)&dirty != 0
	return info, nil
}

// Usage returns how full the volume is. Free is -1 where to count it would take too long.
func (v *Volume) Usage() (tree.Usage, error) {
	v.reads = 0
	usage := tree.Usage{Size: v.clusters * v.clusterSize, Free: -1}
	if v.clusters/8 > maxBitmap {
		return usage, nil
	}
	used, err := v.used()
	if err != nil {
		return usage, fmt.Errorf("$Bitmap: %w", err)
	}
	usage.Free = (v.clusters - used) * v.clusterSize
	return usage, nil
}

// used counts the clusters in use.
func (v *Volume) used() (int64, error) {
	r, err := v.record(recordBitmap)
	if err != nil {
		return 0, err
	}
	s, err := v.stream(r, typeData, "")
	if err != nil {
		return 0, err
	}
	if s.size < (v.clusters+7)/8 {
		return 0, fmt.Errorf("%w: %d bytes for %d clusters", errCorrupt, s.size, v.clusters)
	}
	return s.ones(v.clusters)
}

// ones counts the bits that are set among the first count.
func (s *stream) ones(count int64) (int64, error) {
	set := int64(0)
	piece := make([]byte, 1<<20)
	for off := int64(0); off*8 < count; off += int64(len(piece)) {
		if err := s.v.step(len(piece) >> 8); err != nil {
			return 0, err
		}
		p := piece[:min(int64(len(piece)), (count+7)/8-off)]
		if err := s.readAt(p, off); err != nil {
			return 0, err
		}
		if rest := count - off*8; rest < int64(len(p))*8 { // bits of the last byte that stand for nothing
			p[len(p)-1] &= 1<<(rest%8) - 1
		}
		for _, b := range p {
			set += int64(bits.OnesCount8(b))
		}
	}
	return set, nil
}

// LogClosed reports whether the journal has nothing to replay: it is empty, or its last
// user closed it. An open one is what a crash, a snapshot of a running guest and
// hibernation leave behind.
func (v *Volume) LogClosed() (bool, error) {
	v.reads = 0
	r, err := v.record(recordLog)
	if err != nil {
		return false, fmt.Errorf("$LogFile: %w", err)
	}
	s, err := v.stream(r, typeData, "")
	if err != nil {
		return false, fmt.Errorf("$LogFile: %w", err)
	}
	page := make([]byte, min(4096, s.size))
	if err := s.readAt(page, 0); err != nil {
		return false, fmt.Errorf("$LogFile: %w", err)
	}
	return closed(page)
}

// closed reads a restart page. The two pages have the same last user, except after a crash between
// their writes, and then the journal is open in any case.
func closed(page []byte) (bool, error) {
	if len(page) < 512 || string(page[:4]) == "\xff\xff\xff\xff" {
		return true, nil // never used
	}
	at := int(le16(page, 0x18))
	if string(page[:4]) != "RSTR" || at < 0x1e || at+0x10 > len(page) {
		return false, fmt.Errorf("$LogFile: %w: no restart page", errCorrupt)
	}
	const (
		nobody = 0xffff
		clean  = 2
	)
	return le16(page, at+0xc) == nobody || le16(page, at+0xe)&clean != 0, nil
}
