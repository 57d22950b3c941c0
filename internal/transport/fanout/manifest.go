package fanout

import (
	"context"

	"github.com/decamp/decamp/internal/manifest"
)

// commonManifest combines the manifests of all present parts: a chunk is listed if each of them lists
// it.
type commonManifest struct{ *sharedTransfer }

var _ manifest.Ledger = commonManifest{}

// Info is part of manifest.Ledger. It returns the info of the first part; all are for the same disk.
func (l commonManifest) Info() manifest.Info { return l.parts[0].job.Manifest.Info() }

// Chunks is part of manifest.Ledger.
func (l commonManifest) Chunks() int64 { return l.parts[0].job.Manifest.Chunks() }

// Complete is part of manifest.Ledger.
func (l commonManifest) Complete() bool { return l.Missing() == 0 }

// Has is part of manifest.Ledger.
func (l commonManifest) Has(chunk int64) bool {
	for _, p := range l.parts {
		if !p.isGone() && !p.job.Manifest.Has(chunk) {
			return false
		}
	}
	return true
}

// Missing is part of manifest.Ledger. It checks each chunk, because the manifests may lack different
// ones.
func (l commonManifest) Missing() int64 {
	var n int64
	for c := range l.Chunks() {
		if !l.Has(c) {
			n++
		}
	}
	return n
}

// Hash is part of manifest.Ledger. It returns false if the manifests differ.
func (l commonManifest) Hash(chunk int64) (hash manifest.Hash, ok bool, err error) {
	for _, p := range l.parts {
		var h manifest.Hash
		var has bool
		failed := p.runIfPresent(context.Background(), func() (err error) { h, has, err = p.job.Manifest.Hash(chunk); return err })
		switch {
		case failed != nil:
			continue // the part has left
		case !has || ok && h != hash:
			return hash, false, nil
		}
		hash, ok = h, true
	}
	return hash, ok, nil
}

// Append is part of manifest.Ledger.
func (l commonManifest) Append(ctx context.Context, runs []manifest.Run) error {
	return l.forEach(ctx, func(p *part) error {
		return p.runIfPresent(ctx, func() error { return p.job.Manifest.Append(ctx, runs) })
	})
}

// Drop is part of manifest.Ledger.
func (l commonManifest) Drop(first, n int64) error {
	ctx := context.Background() // a drop must not be canceled
	return l.forEach(ctx, func(p *part) error {
		return p.runIfPresent(ctx, func() error { return p.job.Manifest.Drop(first, n) })
	})
}

// DropAll is part of manifest.Ledger.
func (l commonManifest) DropAll(chunks []int64) error {
	ctx := context.Background() // a drop must not be canceled
	return l.forEach(ctx, func(p *part) error {
		return p.runIfPresent(ctx, func() error { return p.job.Manifest.DropAll(chunks) })
	})
}
