package fanout

import (
	"context"

	"github.com/decamp/decamp/internal/manifest"
)

// commonManifest speaks for the manifests of all that are there: a chunk is safe if it is safe in
// each of them.
type commonManifest struct{ *sharedTransfer }

var _ manifest.Ledger = commonManifest{}

func (l commonManifest) Info() manifest.Info { return l.parts[0].job.Manifest.Info() }
func (l commonManifest) Chunks() int64       { return l.parts[0].job.Manifest.Chunks() }
func (l commonManifest) Complete() bool      { return l.Missing() == 0 }

func (l commonManifest) Has(chunk int64) bool {
	for _, p := range l.parts {
		if !p.isGone() && !p.job.Manifest.Has(chunk) {
			return false
		}
	}
	return true
}

// Missing looks at each chunk: which ones the manifests lack may differ.
func (l commonManifest) Missing() int64 {
	var n int64
	for c := range l.Chunks() {
		if !l.Has(c) {
			n++
		}
	}
	return n
}

// Hash tells nothing where the manifests do not agree.
func (l commonManifest) Hash(chunk int64) (hash manifest.Hash, ok bool, err error) {
	for _, p := range l.parts {
		var h manifest.Hash
		var has bool
		failed := p.runIfPresent(context.Background(), func() (err error) { h, has, err = p.job.Manifest.Hash(chunk); return err })
		switch {
		case failed != nil:
			continue // it is gone
		case !has || ok && h != hash:
			return hash, false, nil
		}
		hash, ok = h, true
	}
	return hash, ok, nil
}

func (l commonManifest) Append(ctx context.Context, runs []manifest.Run) error {
	return l.forEach(ctx, func(p *part) error {
		return p.runIfPresent(ctx, func() error { return p.job.Manifest.Append(ctx, runs) })
	})
}

func (l commonManifest) Drop(first, n int64) error {
	ctx := context.Background() // a drop is done, whatever comes
	return l.forEach(ctx, func(p *part) error {
		return p.runIfPresent(ctx, func() error { return p.job.Manifest.Drop(first, n) })
	})
}

func (l commonManifest) DropAll(chunks []int64) error {
	ctx := context.Background() // a drop is done, whatever comes
	return l.forEach(ctx, func(p *part) error {
		return p.runIfPresent(ctx, func() error { return p.job.Manifest.DropAll(chunks) })
	})
}
