package dir

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/targets"
)

// startedFile is in the folder of a VM that decamp has started at its target.
const startedFile = "started.json"

// writerByte is the byte of an image that QEMU locks if it can write to the image. A trial boot, which
// only reads the image, locks other bytes. Programs that lock a whole file lock this byte, too.
const writerByte = 101

// started is the content of startedFile.
type started struct {
	Time time.Time `json:"time"` // time of the first start, UTC
}

// MarkStarted records that decamp has started the published VM of a folder. An existing mark is kept.
func MarkStarted(folder string, now time.Time) error {
	path := filepath.Join(folder, startedFile)
	if _, err := os.Lstat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text, err := json.Marshal(started{now.UTC().Truncate(time.Second)})
	if err != nil {
		return err
	}
	return ioFault(atomicfile.Replace(path, append(text, '\n'), 0o644))
}

// Started returns the time when decamp first started the published VM of a folder, or zero if it did
// not.
func Started(folder string) time.Time {
	var s started
	text, err := os.ReadFile(filepath.Join(folder, startedFile))
	if err != nil || json.Unmarshal(text, &s) != nil {
		return time.Time{}
	}
	return s.Time
}

// WrittenSince calls the function WrittenSince for an image of the record. Records of older versions
// contain no
// modification times; then the time of vm.json is used, which was written after the images.
func (r *Record) WrittenSince(folder string, img RecordedImage) string {
	published, least := img.Modified, int64(0)
	if published.IsZero() { // an older version wrote the record, after the images
		record, err := os.Stat(filepath.Join(folder, recordFile))
		if err != nil {
			return ""
		}
		published = record.ModTime()
	}
	if img.Format == targets.Raw {
		least = img.Size
	}
	return WrittenSince(filepath.Join(folder, img.File), least, published)
}

// WrittenSince returns why the content of an image may differ from when it was published, as after a
// start of
// its VM: a program has it locked for writing, or its modification time is later. It returns "" if
// there is
// no such sign, or if the image is shorter than least bytes, which no start explains.
func WrittenSince(path string, least int64, published time.Time) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.Size() < least {
		return ""
	}
	writer := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: writerByte, Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &writer); err == nil && writer.Type != unix.F_UNLCK {
		return "another process has it open for writing, as QEMU does while the VM runs"
	}
	if !info.ModTime().After(published) {
		return ""
	}
	return fmt.Sprintf("it was last written on %s, after its publication on %s", formatTime(info.ModTime()), formatTime(published))
}

// formatTime returns t in local time for messages.
func formatTime(t time.Time) string { return t.Local().Format(time.DateTime) }
