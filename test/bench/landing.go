package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// landingFigures measures the landing next to ganesha, and next to two limits: a server
// that discards all data, and the file system without a server. Then it measures whole
// copies from emulated hosts. Compared servers run in turn.
func landingFigures(ctx context.Context, b *bench) error {
	return errors.Join(
		landIntoMemory(ctx, b),
		landDisk(ctx, b),
		landThin(ctx, b),
		landEight(ctx, b),
	)
}

const (
	kib = 1 << 10 // bytes of a KiB

	landSize   = 1 << 30 // bytes of one file
	landRounds = 5       // number of rounds; odd, because the median counts
	diskRounds = 3       // number of rounds that wait for a disk

	small, large = 64 * kib, 1024 * kib // request sizes: that of vmkfstools, and the largest of the server

	commitTime = 10 * time.Millisecond // time of a commit on a hard disk or a RAID
	syncSize   = 32 << 20              // bytes written to the server that syncs each write
)

// names of the compared writers in the table
const (
	decamp   = "decamp"                              // decamp's server
	hashed   = "decamp with manifest"                // decamp's server with hashes
	ganesha  = "nfs-ganesha, FSAL VFS"               // nfs-ganesha on a folder
	throwing = "a server that discards all data"     // writes nothing
	barely   = "a minimal server that writes behind" // receives data and writes a file
	plainly  = "pwrite without a server"             // writes without a server
	syncing  = "a server on sync, 10 ms a commit"    // server that flushes each write
)

// landIntoMemory writes to a tmpfs, so that the servers are the limit.
func landIntoMemory(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp("/dev/shm", "decamp-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := startServers(ctx, dir, decamp, hashed, ganesha, throwing, barely)
	if err != nil {
		return err
	}
	defer c.stop()
	return errors.Join(smallWrites(ctx, b, c), singleWrites(ctx, b, c), largeWrites(ctx, b, c))
}

// smallWrites measures 64 KiB writes with 8 in flight, and the cost of a manifest.
func smallWrites(ctx context.Context, b *bench, c *nfsServers) error {
	r, err := c.runRounds(ctx, landRounds, writeSpec{size: landSize, block: small, inFlight: 8}, decamp, hashed, ganesha, throwing)
	if err != nil {
		return err
	}
	landingRates(b, "64 KiB x 8 in flight, FILE_SYNC, into tmpfs", r, hashed, ganesha, throwing)
	b.atLeast(1.7, r.compareWith(ganesha, "64 KiB x 8 into tmpfs, against ganesha"))
	extra := make([]float64, landRounds)
	for i := range extra {
		// Both values are from the same round.
		extra[i] = r[hashed].server[i] - r[decamp].server[i]
	}
	b.atMost(0.5, Row{Figure: "landing with a manifest: what that costs the server", Value: median(extra), Unit: "CPU s/GiB",
		Note: fmt.Sprintf("64 KiB x 8; %.2f in all, %.0f MB/s", median(r[hashed].server), median(r[hashed].rate))})
	return nil
}

// singleWrites measures 64 KiB writes, one at a time.
func singleWrites(ctx context.Context, b *bench, c *nfsServers) error {
	r, err := c.runRounds(ctx, landRounds, writeSpec{size: landSize, block: small, inFlight: 1}, decamp, ganesha, barely, throwing)
	if err != nil {
		return err
	}
	landingRates(b, "64 KiB x 1 in flight, FILE_SYNC, into tmpfs", r, ganesha, throwing, barely)
	row := r.compareWith(ganesha, "64 KiB x 1 into tmpfs, against ganesha")
	row.Peers = []Peer{
		{Name: throwing + ", against ganesha", Value: r.ratio(throwing, ganesha)},
		{Name: barely + ", against ganesha", Value: r.ratio(barely, ganesha)},
	}
	b.atLeast(2.5, row)
	return nil
}

// largeWrites measures 1 MiB writes with 8 in flight.
func largeWrites(ctx context.Context, b *bench, c *nfsServers) error {
	r, err := c.runRounds(ctx, landRounds, writeSpec{size: landSize, block: large, inFlight: 8}, decamp, ganesha, barely, throwing, plainly)
	if err != nil {
		return err
	}
	landingRates(b, "1 MiB x 8 in flight, FILE_SYNC, into tmpfs", r, ganesha, throwing, barely, plainly)
	b.atLeast(1.2, r.compareWith(ganesha, "1 MiB x 8 into tmpfs, against ganesha"))
	row := r.compareWith(plainly, "1 MiB x 8 into tmpfs, against pwrite without a server")
	row.Peers = []Peer{landingEnds(b.machine, r), {Name: barely + ", against pwrite", Value: r.ratio(barely, plainly)}}
	b.atLeast(0.85, row)
	return nil
}

// landingEnds returns the highest rate that a server could reach on these processors,
// which the client shares: if it needed only the time for receiving the bytes and for
// writing them.
func landingEnds(m Machine, r results) Peer {
	client, server, file := median(r[throwing].client), median(r[throwing].server), median(r[plainly].server)
	// The file system may be the limit instead of the processors.
	rate := min(float64(m.Cores)/(client+server+file)*(1<<30)/1e6, median(r[plainly].rate))
	return Peer{Name: "the ends alone: sending, receiving and pwrite, on these cores", Value: rate / median(r[plainly].rate),
		Note: fmt.Sprintf("%d cores, %.2f + %.2f + %.2f CPU s/GiB: %.0f MB/s", m.Cores, client, server, file, rate)}
}

// published contains measurements of other authors on real hosts, with exports that are
// sync and async.
var published = []Peer{
	{Name: "published: async against sync, SSD to NVMe, 25G", Value: 289.7 / 12.3, Note: "cipeople/esx-migration, February 2026: 289.7 and 12.3 MiB/s"},
	{Name: "published: async against sync, HDD to HDD, 1G", Value: 82.4 / 6.5, Note: "same: 82.4 and 6.5 MiB/s (by its duration, 19 GiB in 10198 s, the latter is 1.9)"},
}

// landDisk writes to the file system of the images until all data is on the medium.
func landDisk(ctx context.Context, b *bench) error {
	dir, err := os.MkdirTemp(b.dir, "landing")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := startServers(ctx, dir, decamp, ganesha, syncing)
	if err != nil {
		return err
	}
	defer c.stop()
	l := writeSpec{size: landSize, block: small, inFlight: 8, commit: true}
	r, err := c.runRounds(ctx, diskRounds, l, decamp, ganesha)
	if err != nil {
		return err
	}
	l.size = syncSize
	slow, err := c.runRounds(ctx, 1, l, syncing) // a rate that the clock makes
	if err != nil {
		return err
	}
	r[syncing] = slow[syncing]
	onto := "64 KiB x 8 onto " + b.machine.FS + ", until synced"
	landingRates(b, onto, r, ganesha, syncing)
	b.atLeast(2.5, r.compareWith(ganesha, onto+", against ganesha"))
	row := r.compareWith(syncing, onto+", against a server on sync whose disk commits in 10 ms")
	row.Peers = published
	b.atLeast(100, row)
	return nil
}

// landingRates adds a row with the rates of all servers, decamp's first.
func landingRates(b *bench, figure string, r results, peers ...string) {
	row := Row{Figure: figure, Value: median(r[decamp].rate), Unit: "MB/s", Note: r[decamp].costNote() + fmt.Sprintf("; median of %d", len(r[decamp].rate))}
	for _, name := range peers {
		row.Peers = append(row.Peers, Peer{Name: name, Value: median(r[name].rate), Note: r[name].costNote()})
	}
	b.addRow(row)
}

// compareWith returns a row with decamp's rate divided by that of another server.
func (r results) compareWith(other, figure string) Row {
	ours, theirs := r[decamp], r[other]
	return Row{Figure: figure, Value: r.ratio(decamp, other), Unit: "x",
		Note: fmt.Sprintf("%.0f against %.0f MB/s; server %.2f against %.2f CPU s/GiB",
			median(ours.rate), median(theirs.rate), median(ours.server), median(theirs.server))}
}

// ratio returns the rate of one server divided by that of another: the median over the
// rounds. In each round, both ran within the same minute.
func (r results) ratio(name, other string) float64 {
	rates, others := r[name].rate, r[other].rate
	ratios := make([]float64, len(rates))
	for i := range ratios {
		// A server that ran in fewer rounds is compared by its last one.
		ratios[i] = rates[i] / others[min(i, len(others)-1)]
	}
	return median(ratios)
}
