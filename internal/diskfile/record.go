package diskfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"sync"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk"
)

// A fileRecord records the files of a disk when they are opened. It is a vmdk.Files, and safe for
// concurrent use.
type fileRecord struct {
	from vmdk.Files // source of the files

	mu   sync.Mutex      // guards seen
	seen strings.Builder // one line for each file: name, size and modification time
}

// Open opens a file of from and records it.
func (r *fileRecord) Open(ctx context.Context, name string) (disk.Source, error) {
	src, err := r.from.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	if f, ok := src.(interface{ Stat() (os.FileInfo, error) }); ok {
		r.addStat(name)(f.Stat())
	}
	return src, nil
}

// addFile records the file at path.
func (r *fileRecord) addFile(path string) { r.addStat(path)(os.Stat(path)) }

// addStat returns a function that records the result of a Stat. If the Stat failed, the digest differs
// from that of a later, successful one.
func (r *fileRecord) addStat(name string) func(os.FileInfo, error) {
	return func(info os.FileInfo, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if err != nil {
			fmt.Fprintf(&r.seen, "%q %v\n", name, err)
			return
		}
		fmt.Fprintf(&r.seen, "%q %d %d\n", name, info.Size(), info.ModTime().UnixNano())
	}
}

// digest returns a short digest of all recorded files in hex.
func (r *fileRecord) digest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256([]byte(r.seen.String()))
	return hex.EncodeToString(sum[:8])
}
