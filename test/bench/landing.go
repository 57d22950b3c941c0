package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	landRounds = 5 // odd; the median counts
	landSize   = 2 << 30
	kib        = 1 << 10
)

// landingFigures measures the landing beside ganesha and beside what bounds both: a server
// that throws everything away, and the file system alone. All of them take turns.
func landingFigures(ctx context.Context, b *bench) error {
	return errors.Join(
		b.landMemory(ctx),
	)
}

// contenders are servers that write to one file system, and the file system alone.
type contenders struct {
	arena   *arena
	dir     string
	servers map[string]*nfsServer
}

// who takes part, by the names that the table shows
const (
	ours     = "decamp"
	hashed   = "decamp with manifest"
	ganesha  = "ganesha (VFS)"
	throwing = "a server that throws it away"
	plainly  = "plain pwrite"
	syncing  = "a server on sync, 10 ms a commit"
)

// contend starts the servers on folders below dir.
func contend(ctx context.Context, conf, dir string) (*contenders, error) {
	c := &contenders{dir: dir, servers: map[string]*nfsServer{}}
	var err error
	if c.arena, err = newArena(ctx, conf); err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		c.stop()
		return nil, err
	}
	return c, nil
}

func (c *contenders) start(ctx context.Context) error {
	jobs := map[string]serverJob{ours: {}, hashed: {Manifest: true}, syncing: {Commit: commitTime}}
	for name, job := range jobs {
		job.Size = landSize
		var err error
		if job.Dir, err = os.MkdirTemp(c.dir, "land"); err != nil {
			return err
		}
		if c.servers[name], err = c.arena.serve(ctx, "serve", job); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(c.dir, "ganesha")
	if err != nil {
		return err
	}
	if c.servers[ganesha], err = c.arena.ganesha(ctx, dir); err != nil {
		return err
	}
	c.servers[throwing], err = c.arena.serve(ctx, "sink", struct{}{})
	if err != nil {
		return err
	}
	c.servers[throwing].path = ""
	return nil
}

func (c *contenders) stop() {
	for _, s := range c.servers {
		if s != nil {
			s.stop()
		}
	}
	c.arena.close()
}

// writing is how a file is written.
type writing struct {
	size     int64
	block    int
	inFlight int
	commit   bool
}

// result is what one contender reached, over all rounds.
type result struct{ rate, server, client []float64 } // MB/s, and CPU s/GiB of either side

func (r *result) String() string {
	return fmt.Sprintf("%.0f MB/s, server %.2f CPU s/GiB", median(r.rate), median(r.server))
}

// rounds has contenders write in turn.
func (c *contenders) rounds(ctx context.Context, n int, l writing, names ...string) (map[string]*result, error) {
	results := map[string]*result{}
	for range n {
		for _, name := range names {
			if results[name] == nil {
				results[name] = &result{}
			}
			if err := c.once(ctx, name, l, results[name]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return results, nil
}

func (c *contenders) once(ctx context.Context, name string, l writing, r *result) error {
	var t taken
	if name == plainly {
		job := pwriteJob{Path: filepath.Join(c.dir, "pwrite"), Size: l.size, Block: l.block}
		if err := c.arena.child(ctx, &t, "pwrite", job); err != nil {
			return err
		}
		r.rate, r.server = append(r.rate, t.rate()), append(r.server, t.cpuPerGiB())
		return nil
	}
	s := c.servers[name]
	before, err := s.cpu()
	if err != nil {
		return err
	}
	job := s.streamJob(l.size, l.block, l.inFlight)
	job.Commit = l.commit
	if err := c.arena.child(ctx, &t, "stream", job); err != nil {
		return err
	}
	after, err := s.cpu()
	cost := taken{Bytes: t.Bytes, CPU: after - before}
	r.rate, r.server, r.client = append(r.rate, t.rate()), append(r.server, cost.cpuPerGiB()), append(r.client, t.cpuPerGiB())
	return err
}

const commitTime = 10e6

func (b *bench) landMemory(ctx context.Context) error {
	dir, err := os.MkdirTemp("/dev/shm", "decamp-bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, err := contend(ctx, b.dir, dir)
	if err != nil {
		return err
	}
	defer c.stop()
	for _, l := range []writing{{landSize, 64 * kib, 8, false}, {landSize, 64 * kib, 1, false}, {landSize, 1024 * kib, 8, false}} {
		res, err := c.rounds(ctx, 3, l, ours, hashed, ganesha, throwing, plainly)
		if err != nil {
			return err
		}
		for k, v := range res {
			fmt.Println(l, k, v, v.rate, v.client)
		}
	}
	return nil
}
