package migrate_test

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/transport"
)

func TestSourceSumsMatchTheImage(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"sha256", "md5"} {
		b := newTestBed(t)
		env := b.newEnvironment(t, b.dir)
		env.Sum = func(_ context.Context, d transport.Disk) (migrate.SourceSum, error) {
			data := b.disks[d.Disk.Key]
			long, short := sha256.Sum256(data), md5.Sum(data)
			sum := map[string][]byte{"sha256": long[:], "md5": short[:]}[algorithm]
			return migrate.SourceSum{Algorithm: algorithm, Hex: hex.EncodeToString(sum), By: "flat"}, nil
		}
		out, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{SourceHash: true})
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		for _, v := range out.Facts.Verified {
			if sum, err := os.ReadFile(filepath.Join(b.dir, fmt.Sprintf("%d.md5", v.Key))); err != nil || !strings.HasPrefix(string(sum), v.MD5) {
				t.Errorf("the audit file of disk %d: %q, %v", v.Key, sum, err)
			}
			if v.Source == nil || v.Source.Algorithm != algorithm || v.Source.Hex != v.SHA256 && v.Source.Hex != v.MD5 {
				t.Errorf("disk %d: %+v", v.Key, v.Source)
			}
		}
	}
}

// The MD5 file of an earlier attempt is removed.
func TestOutdatedMD5IsRemoved(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	outdated := filepath.Join(b.dir, "2000.md5")
	if err := os.WriteFile(outdated, []byte("00  2000\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := b.newProcess().Migrate(t.Context(), b.plan(), b.newEnvironment(t, b.dir), migrate.Permit{})
	if err != nil {
		t.Fatal(err)
	}
	b.checkPublished(out)
	if _, err := os.Lstat(outdated); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("outdated MD5 file: %v, want it removed", err)
	}
}

// openDisk counts how many times a disk is open for its second read.
type openDisk struct {
	disk.Source
	open *atomic.Int32
}

func (d openDisk) Close() error {
	d.open.Add(-1)
	return d.Source.Close()
}

// The host hashes a disk only after the second read has closed it, because NFC locks an open disk.
func TestDiskIsNotHashedWhileItIsReadAgain(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	env := b.newEnvironment(t, b.dir)
	open, hashed := map[int32]*atomic.Int32{}, atomic.Int32{}
	for _, d := range b.vm.Disks {
		open[d.Key] = new(atomic.Int32)
	}
	reread := env.Reread
	env.Reread = func(ctx context.Context, d transport.Disk) (disk.Source, string, error) {
		open[d.Disk.Key].Add(1)
		src, by, err := reread(ctx, d)
		return openDisk{src, open[d.Disk.Key]}, by, err
	}
	env.Sum = func(_ context.Context, d transport.Disk) (migrate.SourceSum, error) {
		if open[d.Disk.Key].Load() > 0 {
			return migrate.SourceSum{}, fault.New(fault.Conflict, "disk %d is open", d.Disk.Key)
		}
		hashed.Add(1)
		sum := sha256.Sum256(b.disks[d.Disk.Key])
		return migrate.SourceSum{Algorithm: "sha256", Hex: hex.EncodeToString(sum[:])}, nil
	}
	if _, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{SourceHash: true}); err != nil || int(hashed.Load()) != len(b.vm.Disks) {
		t.Errorf("%d of %d disks hashed, %v", hashed.Load(), len(b.vm.Disks), err)
	}
}

func TestWrongSourceSumPreventsPublish(t *testing.T) {
	t.Parallel()
	for _, other := range []migrate.SourceSum{
		{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, {Algorithm: "md5", Hex: strings.Repeat("0", 32)},
	} {
		b := newTestBed(t)
		env := b.newEnvironment(t, b.dir)
		env.Sum = func(context.Context, transport.Disk) (migrate.SourceSum, error) { return other, nil }
		_, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{SourceHash: true})
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), other.Hex) || fault.HintOf(err) == "" || b.published != nil {
			t.Errorf("got %v, published %v", err, b.published)
		}
	}
}

func TestFailedSourceSumPreventsPublish(t *testing.T) {
	t.Parallel()
	b := newTestBed(t)
	env := b.newEnvironment(t, b.dir)
	calls := 0
	env.Sum = func(context.Context, transport.Disk) (migrate.SourceSum, error) {
		calls++
		return migrate.SourceSum{}, errors.New("no such command")
	}
	if _, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{SourceHash: true}); err == nil || b.published != nil {
		t.Errorf("got %v, published %v", err, b.published)
	}
	b, calls = newTestBed(t), 0
	sum := env.Sum
	env = b.newEnvironment(t, b.dir)
	env.Sum = sum
	if _, err := b.newProcess().Migrate(t.Context(), b.plan(), env, migrate.Permit{}); err != nil || calls > 0 {
		t.Errorf("without SourceHash: %v, %d calls of Sum", err, calls)
	}
}
