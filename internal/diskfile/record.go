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

// record notes what a disk's files are when they are opened. It is a vmdk.Files.
type fileRecord struct {
	from vmdk.Files

	mu   sync.Mutex
	seen strings.Builder
}

// Open opens a file of from, and notes it.
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

// addFile notes the file at path.
func (r *fileRecord) addFile(path string) { r.addStat(path)(os.Stat(path)) }

// addStat takes the result of a Stat. A file that cannot be looked at now will be another
// one next time.
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

// digest is a short digest of all that was noted.
func (r *fileRecord) digest() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	sum := sha256.Sum256([]byte(r.seen.String()))
	return hex.EncodeToString(sum[:8])
}
