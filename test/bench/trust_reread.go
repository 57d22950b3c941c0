package main

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/decamp/decamp/internal/lab"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/transport"
	"github.com/decamp/decamp/internal/transport/https"
)

const (
	rereadDisk = 100 << 30 // size in bytes of the disk whose sample is read again
	rereadPart = 4 << 30   // bytes that are copied to measure the rate of a copy
)

// rereadShare measures the additional time of the default second reading for a disk of
// 100 GiB, with the limits of a real host: 55 MB/s per connection and 300 MB/s per
// datastore. The second reading uses the whole disk and as many metadata chunks as
// possible. The copy uses 4 GiB, and its time for 100 GiB is computed from the rate,
// because the whole copy would take 6 minutes.
func rereadShare(ctx context.Context, b *bench) error {
	limits := lab.Limits{ConnRate: connCap, DatastoreRate: datastoreCap}
	part, err := startLab(ctx, lab.Disk{Capacity: rereadPart, Fill: 100, Thick: true}, limits)
	if err != nil {
		return err
	}
	defer part.stop()
	copied, err := pullHTTPS(ctx, part, pullJob{Path: filepath.Join(b.dir, "reread.raw"), Format: "raw", Manifest: true})
	if err != nil {
		return err
	}
	took, report, err := rereadImages(ctx, b.dir, limits)
	if err != nil {
		return err
	}
	// Seconds that the copy of the whole disk would take.
	whole := rereadDisk / 1e6 / copied.rate()
	b.atMost(1, Row{Figure: "default re-read of a disk of 100 GiB: share of the copy's time", Value: 100 * took.Seconds() / whole, Unit: "%",
		Note: fmt.Sprintf("%d MiB (%d of them metadata, the most there may be) in %.2f s over %d connections; the copy of 4 GiB at %.0f MB/s makes %.0f s for 100 GiB",
			report.Bytes>>20, report.Metadata, took.Seconds(), migrate.RereadConnections, copied.rate(), whole)})
	return nil
}

// rereadImages reads a sample of the disk again. It returns the duration without
// opening the disk.
func rereadImages(ctx context.Context, dir string, limits lab.Limits) (took time.Duration, report manifest.Reread, err error) {
	info := manifest.Info{Disk: "2000", Size: rereadDisk, Source: "bench"}
	sample := manifest.Sample{Random: migrate.RandomChunks}
	if _, err := rand.Read(sample.Seed[:]); err != nil {
		return 0, report, err
	}
	for most := int64(migrate.MostMetadata(info.Chunks())); int64(len(sample.Metadata)) < most; { // spread over the disk
		sample.Metadata = append(sample.Metadata, (int64(len(sample.Metadata))+1)*info.Chunks()/(most+2))
	}
	path := filepath.Join(dir, "reread.manifest")
	defer os.Remove(path)
	err = onDisk(ctx, lab.Limits{}, func(src *https.Source) error { return writeSample(ctx, path, info, sample, src) })
	if err != nil {
		return 0, report, err
	}
	m, err := manifest.Load(path)
	if err != nil {
		return 0, report, err
	}
	defer m.Close()
	err = onDisk(ctx, limits, func(src *https.Source) (err error) {
		began := time.Now()
		report, err = sample.Compare(ctx, src, m, nil)
		took = time.Since(began)
		return err
	})
	return took, report, err
}

// onDisk calls do with the disk of an emulated host, opened like a second reading.
func onDisk(ctx context.Context, limits lab.Limits, do func(*https.Source) error) error {
	e, err := startLab(ctx, lab.Disk{Capacity: rereadDisk, Fill: 100, Thick: true}, limits)
	if err != nil {
		return err
	}
	defer e.stop()
	host, err := e.facts.logIn(ctx, "esxi")
	if err != nil {
		return err
	}
	defer host.Close()
	vm, err := host.VM(ctx, benchVM)
	if err != nil {
		return err
	}
	again := https.New(host, https.Options{MaxConnections: migrate.RereadConnections})
	defer again.Close()
	src, err := again.Open(ctx, transport.Disk{VM: vm, Disk: &vm.Disks[0]})
	if err != nil {
		return err
	}
	defer src.Close()
	return do(src)
}

// writeSample writes the manifest of a disk that contains only the chunks of a sample.
func writeSample(ctx context.Context, path string, info manifest.Info, sample manifest.Sample, src *https.Source) error {
	log, err := manifest.Create(path, info)
	if err != nil {
		return err
	}
	defer log.Close()
	chunks, _ := sample.Of(info)
	var runs []manifest.Run
	next := int64(0) // the first chunk that is not in runs
	for _, c := range chunks {
		at := info.Chunk(c)
		buf := make([]byte, at.Len)
		if err := src.ReadAt(ctx, buf, at.Off); err != nil {
			return err
		}
		// Chunks between two chunks of the sample are recorded as zeros; the comparison
		// does not read them.
		if c > next {
			runs = append(runs, manifest.Run{First: next, Zeros: c - next})
		}
		runs = append(runs, manifest.Run{First: c, Hashes: []manifest.Hash{manifest.HashOf(buf)}})
		next = c + 1
	}
	if err := log.Append(ctx, runs); err != nil {
		return err
	}
	_, err = log.Seal(ctx)
	return err
}
