package manifest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/zeebo/blake3"

	"github.com/decamp/decamp/internal/atomicfile"
	"github.com/decamp/decamp/internal/fault"
)

// Seal writes the manifest in chunk order to a new file, which durably replaces the log. It requires
// all chunks (Conflict otherwise). A crash leaves either the log or the sealed file. Sealing a sealed
// manifest returns the same root.
func (l *Log) Seal(ctx context.Context) (Hash, error) {
	l.ioMu.Lock()
	defer l.ioMu.Unlock()
	if err := l.sealFile(ctx); err != nil {
		return Hash{}, fmt.Errorf("seal manifest %s: %w", l.path, err)
	}
	return l.root, nil
}

// sealFile seals the log. It also syncs the folder if the log is sealed already, because a crash may
// have come between rename and sync.
func (l *Log) sealFile(ctx context.Context) error {
	if n := l.Missing(); n > 0 {
		return fault.New(fault.Conflict, "%d of %d chunks are missing", n, l.Chunks()).
			WithHint("finish the copy first")
	}
	if !l.sealed {
		if err := l.rewriteSealed(ctx); err != nil {
			return err
		}
	}
	if err := l.step("sync folder"); err != nil {
		return err
	}
	return kindOfIO(atomicfile.Sync(filepath.Dir(l.path)))
}

// rewriteSealed replaces the log by a sealed file.
func (l *Log) rewriteSealed(ctx context.Context) error {
	return l.replaceFile(l.head, func(s *sealer) error {
		if err := s.writeAll(ctx, l.chunks, l.f); err != nil {
			return err
		}
		return s.writeSeal()
	})
}

// replaceFile replaces the log by the file that write creates, with the given header. After an error
// the log is unchanged. ioMu must be held.
func (l *Log) replaceFile(head header, write func(*sealer) error) error {
	if err := l.step("create"); err != nil {
		return err
	}
	f, err := newFile(l.path)
	if err != nil {
		return err
	}
	s := newSealer(head, f)
	if err := l.writeAndRename(s, write); err != nil {
		return errors.Join(err, removeFile(f))
	}
	old := l.f
	l.useFile(s)
	return atomicfile.Unlock(old)
}

// useFile makes the file of s the file of the log.
func (l *Log) useFile(s *sealer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.head, l.f, l.end, l.torn, l.chunks = s.head, s.f, s.tail, false, s.chunks
	l.root, l.sealed = s.root.sum(), s.sealed
}

// writeAndRename writes the file of s, syncs it, and gives it the name of the log.
func (l *Log) writeAndRename(s *sealer, write func(*sealer) error) error {
	if err := l.step("write"); err != nil {
		return err
	}
	if err := write(s); err != nil {
		return err
	}
	if err := l.step("sync"); err != nil {
		return err
	}
	if err := s.f.Sync(); err != nil {
		return kindOfIO(err)
	}
	if err := l.step("rename"); err != nil {
		return err
	}
	return kindOfIO(os.Rename(s.f.Name(), l.path))
}

// A sealer writes the records of a log to a new file in chunk order.
type sealer struct {
	recordBuilder
	f      *os.File    // new file
	head   header      // header of the new file
	chunks *chunkIndex // durable chunks in the new file
	root   *rootHash   // root of the hashes that were written so far
	sealed bool        // the seal was written
	page   []byte      // hashes of one record as bytes of the log
	hashes []Hash      // hashes of one record
}

// newSealer returns a sealer that has encoded the header h.
func newSealer(h header, f *os.File) *sealer {
	s := &sealer{
		f: f, head: h, chunks: newChunkIndex(h.len(), h.info.Chunks()),
		root: newRootHash(h.info), page: make([]byte, maxHashes*hashLen),
	}
	s.buf, s.tail = h.encodeHeader()
	return s
}

// writeAll writes the durable chunks of log, which from lists.
func (s *sealer) writeAll(ctx context.Context, from *chunkIndex, log *os.File) error {
	for r := range from.inOrder() {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.copyRun(r, log); err != nil {
			return err
		}
		if len(s.buf) < maxHashes*int(hashLen) {
			continue
		}
		if err := s.flushFile(); err != nil {
			return err
		}
	}
	s.flush()
	return s.flushFile()
}

// writeSeal writes the last record with the root. All chunks must have been written.
func (s *sealer) writeSeal() error {
	s.buf = s.tail.appendRecord(s.buf, kindSeal, 0, s.head.info.Chunks(), []Hash{s.root.sum()})
	s.sealed = true
	return s.flushFile()
}

// copyRun copies the chunks of r from log.
func (s *sealer) copyRun(r record, log *os.File) error {
	if r.kind == kindZeros {
		s.addRun(Run{First: int64(r.first), Zeros: int64(r.count)})
		s.root.addZeros(int64(r.first), int64(r.count))
		return nil
	}
	page := s.page[:int64(r.count)*hashLen]
	if _, err := log.ReadAt(page, r.off); err != nil {
		return err
	}
	s.hashes = s.hashes[:0]
	for h := range slices.Chunk(page, int(hashLen)) {
		s.hashes = append(s.hashes, Hash(h))
	}
	s.root.addHashes(s.hashes)
	s.addRun(Run{First: int64(r.first), Hashes: s.hashes})
	return nil
}

// flushFile writes the encoded records to the file.
func (s *sealer) flushFile() error {
	at := s.tail.off - int64(len(s.buf))
	if _, err := s.f.WriteAt(s.buf, at); err != nil {
		return kindOfIO(err)
	}
	for _, r := range s.index {
		s.chunks.applyRecord(r)
	}
	s.buf, s.index = s.buf[:0], s.index[:0]
	return nil
}

// rootContext separates roots from other uses of BLAKE3; see docs/formats.
const rootContext = "github.com/decamp/decamp manifest root v1"

// A rootHash computes the root. The root depends on the disk size, the chunk size and the hashes in
// chunk order, and on nothing else.
type rootHash struct {
	info Info           // disk of the hashes
	h    *blake3.Hasher // BLAKE3 in its key derivation mode
}

// newRootHash returns a rootHash without chunks.
func newRootHash(info Info) *rootHash {
	h := blake3.NewDeriveKey(rootContext)
	b := le.AppendUint64(nil, uint64(info.Size))
	h.Write(le.AppendUint64(b, ChunkSize)) // a Hasher never fails
	return &rootHash{info: info, h: h}
}

// addHashes adds the hashes of the next chunks.
func (r *rootHash) addHashes(hashes []Hash) {
	for i := range hashes {
		r.h.Write(hashes[i][:])
	}
}

// addZeros adds n zero chunks from chunk first.
func (r *rootHash) addZeros(first, n int64) {
	for c := first; c < first+n; c++ {
		h := r.info.zeroHash(c)
		r.h.Write(h[:])
	}
}

// sum returns the root of the chunks so far.
func (r *rootHash) sum() (root Hash) {
	r.h.Sum(root[:0])
	return root
}
