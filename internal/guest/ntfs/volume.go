package ntfs

import (
	"fmt"
	"math/bits"
	"unicode/utf16"

	"github.com/decamp/decamp/internal/guest/tree"
)

// maxBitmap limits the bytes read to count free clusters: enough for 512 GiB in clusters of 4 KiB.
const maxBitmap = 16 << 20

// Info is the metadata of a volume.
type Info struct {
	Label   string // name of the volume; empty if it has none
	Version string // version of NTFS: "3.1" since Windows XP
	Dirty   bool   // Windows will check the volume when it starts
}

// Info reads label, version and flags from the $Volume record.
func (v *Volume) Info() (Info, error) {
	v.reads = 0
	r, err := v.readRecord(recordVolume)
	if err != nil {
		return Info{}, fmt.Errorf("$Volume: %w", err)
	}
	var info Info
	// A volume without a label may lack the attribute.
	if name, ok := r.findAttribute(typeVolumeName, ""); ok {
		info.Label = string(utf16.Decode(utf16Units(name.value)))
	}
	about, ok := r.findAttribute(typeVolumeInfo, "")
	if !ok || len(about.value) < 12 {
		return Info{}, fmt.Errorf("$Volume: %w: the volume's information is missing", errCorrupt)
	}
	// $VOLUME_INFORMATION: version at offsets 8 and 9, flags at 10.
	const dirty = 1
	info.Version = fmt.Sprintf("%d.%d", about.value[8], about.value[9])
	info.Dirty = le16(about.value, 10)&dirty != 0
	return info, nil
}

// Usage returns size and free space in bytes. Free is -1 if the bitmap exceeds maxBitmap.
func (v *Volume) Usage() (tree.Usage, error) {
	v.reads = 0
	usage := tree.Usage{Size: v.clusters * v.clusterSize, Free: -1}
	if v.clusters/8 > maxBitmap {
		return usage, nil
	}
	used, err := v.countUsed()
	if err != nil {
		return usage, fmt.Errorf("$Bitmap: %w", err)
	}
	usage.Free = (v.clusters - used) * v.clusterSize
	return usage, nil
}

// countUsed returns the number of clusters in use according to $Bitmap.
func (v *Volume) countUsed() (int64, error) {
	r, err := v.readRecord(recordBitmap)
	if err != nil {
		return 0, err
	}
	s, err := v.openStream(r, typeData, "")
	if err != nil {
		return 0, err
	}
	defer s.release()
	if s.size < (v.clusters+7)/8 {
		return 0, fmt.Errorf("%w: %d bytes for %d clusters", errCorrupt, s.size, v.clusters)
	}
	return s.countOnes(v.clusters)
}

// countOnes returns the number of set bits among the first count bits. It reads 1 MiB at a time.
func (s *stream) countOnes(count int64) (int64, error) {
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
		if rest := count - off*8; rest < int64(len(p))*8 { // unused bits of the last byte
			p[len(p)-1] &= 1<<(rest%8) - 1
		}
		for _, b := range p {
			set += int64(bits.OnesCount8(b))
		}
	}
	return set, nil
}

// LogClosed reports whether the journal has nothing to replay: it is empty or was closed cleanly. It is
// open after a crash, in a snapshot of a running guest, and after hibernation.
func (v *Volume) LogClosed() (bool, error) {
	v.reads = 0
	r, err := v.readRecord(recordLog)
	if err != nil {
		return false, fmt.Errorf("$LogFile: %w", err)
	}
	s, err := v.openStream(r, typeData, "")
	if err != nil {
		return false, fmt.Errorf("$LogFile: %w", err)
	}
	defer s.release()
	page := make([]byte, min(4096, s.size))
	if err := s.readAt(page, 0); err != nil {
		return false, fmt.Errorf("$LogFile: %w", err)
	}
	return logIsClosed(page)
}

// logIsClosed reports whether a restart page has no open client or the "clean" flag. One of the two
// restart pages is sufficient: they differ only after a crash between their writes, and then the
// journal is open in any case.
func logIsClosed(page []byte) (bool, error) {
	if len(page) < 512 || string(page[:4]) == "\xff\xff\xff\xff" {
		return true, nil // journal that was never used
	}
	// Offset 0x18 of a restart page is the position of the restart area.
	at := int(le16(page, 0x18))
	if string(page[:4]) != "RSTR" || at < 0x1e || at+0x10 > len(page) {
		return false, fmt.Errorf("$LogFile: %w: no restart page", errCorrupt)
	}
	const (
		noClient = 0xffff
		clean    = 2
	)
	return le16(page, at+0xc) == noClient || le16(page, at+0xe)&clean != 0, nil
}
