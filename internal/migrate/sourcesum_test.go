package migrate

import (
	"context"
	"crypto/md5"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/transport"
)

func TestSourceSumsProveTheImage(t *testing.T) {
	t.Parallel()
	for _, algorithm := range []string{"sha256", "md5"} {
		b := newBench(t)
		rig := b.rig(t, b.dir)
		rig.Sum = func(_ context.Context, d transport.Disk) (SourceSum, error) {
			data := b.disks[d.Disk.Key]
			long, short := sha256.Sum256(data), md5.Sum(data)
			sum := map[string][]byte{"sha256": long[:], "md5": short[:]}[algorithm]
			return SourceSum{Algorithm: algorithm, Hex: hex.EncodeToString(sum), By: "flat"}, nil
		}
		out, err := b.process().Migrate(t.Context(), b.plan(), rig, Permit{SourceHash: true})
		if err != nil {
			t.Fatal(err)
		}
		b.checkPublished(out)
		for _, v := range out.Facts.Verified {
			if v.Source == nil || v.Source.Algorithm != algorithm || v.Source.Hex != v.SHA256 && v.Source.Hex != v.MD5 {
				t.Errorf("disk %d: %+v", v.Key, v.Source)
			}
		}
	}
}

func TestSourceSumsFindWrongImages(t *testing.T) {
	t.Parallel()
	for _, other := range []SourceSum{
		{Algorithm: "sha256", Hex: strings.Repeat("0", 64)}, {Algorithm: "md5", Hex: strings.Repeat("0", 32)},
	} {
		b := newBench(t)
		rig := b.rig(t, b.dir)
		rig.Sum = func(context.Context, transport.Disk) (SourceSum, error) { return other, nil }
		_, err := b.process().Migrate(t.Context(), b.plan(), rig, Permit{SourceHash: true})
		if !fault.Is(err, fault.Corrupt) || !strings.Contains(err.Error(), other.Hex) || fault.HintOf(err) == "" || b.published != nil {
			t.Errorf("got %v, published %v", err, b.published)
		}
	}
}

func TestSourceSumsThatCannotBeHad(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	rig := b.rig(t, b.dir)
	asked := 0
	rig.Sum = func(context.Context, transport.Disk) (SourceSum, error) {
		asked++
		return SourceSum{}, errors.New("no such command")
	}
	if _, err := b.process().Migrate(t.Context(), b.plan(), rig, Permit{SourceHash: true}); err == nil || b.published != nil {
		t.Errorf("got %v, published %v", err, b.published)
	}
	b, asked = newBench(t), 0
	sum := rig.Sum
	rig = b.rig(t, b.dir)
	rig.Sum = sum
	if _, err := b.process().Migrate(t.Context(), b.plan(), rig, Permit{}); err != nil || asked > 0 {
		t.Errorf("a run that does not ask: %v, asked %d times", err, asked)
	}
}
