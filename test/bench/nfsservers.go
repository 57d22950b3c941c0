package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// contenders are servers in separate processes that write to one file system.
type nfsServers struct {
	arena   *isolatedNet
	dir     string
	servers map[string]*nfsServer
}

// startServers starts servers on folders below dir.
func startServers(ctx context.Context, dir string, names ...string) (*nfsServers, error) {
	c := &nfsServers{dir: dir, servers: map[string]*nfsServer{}}
	var err error
	if c.arena, err = newIsolatedNet(ctx, dir); err != nil {
		return nil, err
	}
	for _, name := range names {
		if c.servers[name], err = c.startServer(ctx, name); err != nil {
			c.stop()
			return nil, err
		}
	}
	return c, nil
}

func (c *nfsServers) startServer(ctx context.Context, name string) (*nfsServer, error) {
	dir, err := os.MkdirTemp(c.dir, "export")
	if err != nil {
		return nil, err
	}
	switch name {
	case ganesha:
		return c.arena.startGanesha(ctx, dir)
	case throwing, barely:
		var job sinkJob
		if name == barely {
			job.File = filepath.Join(dir, "file")
		}
		s, err := c.arena.startServer(ctx, "sink", job)
		if err == nil {
			s.path = "" // the server has no files to name
		}
		return s, err
	}
	job := serverJob{Dir: dir, Size: landSize, Manifest: name == hashed}
	if name == syncing {
		job.Commit = commitTime
	}
	return c.arena.startServer(ctx, "serve", job)
}

func (c *nfsServers) stop() {
	for _, s := range c.servers {
		if s != nil {
			s.stop()
		}
	}
	c.arena.close()
}

// writing is how a file is written.
type writeSpec struct {
	size     int64
	block    int
	inFlight int
	commit   bool // and the time ends when it is on the medium
}

// results are what contenders reached, by name.
type results map[string]*serverRates

// reached is what one contender did in each round.
type serverRates struct{ rate, server, client []float64 } // MB/s, and CPU s/GiB of either side

func (r *serverRates) costNote() string {
	if len(r.client) == 0 {
		return fmt.Sprintf("%.2f CPU s/GiB", median(r.server))
	}
	return fmt.Sprintf("server %.2f, client %.2f CPU s/GiB", median(r.server), median(r.client))
}

// runRounds has contenders write in turn. The longest that anything may take is bounded: a
// server that hangs must not hang the rest.
func (c *nfsServers) runRounds(ctx context.Context, rounds int, w writeSpec, names ...string) (results, error) {
	r := results{}
	for range rounds {
		for _, name := range names {
			if r[name] == nil {
				r[name] = &serverRates{}
			}
			if err := c.runOnce(ctx, name, w, r[name]); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return r, nil
}

// writePatience bounds one file.
const writePatience = 2 * time.Minute

func (c *nfsServers) runOnce(ctx context.Context, name string, w writeSpec, r *serverRates) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	var t measurement
	if name == plainly {
		job := pwriteJob{Path: filepath.Join(c.dir, "pwrite"), Size: w.size, Block: w.block}
		if err := c.arena.runRole(ctx, &t, "pwrite", job); err != nil {
			return err
		}
		r.rate, r.server = append(r.rate, t.rate()), append(r.server, t.cpuPerGiB())
		return nil
	}
	s := c.servers[name]
	job := streamJob{Server: s.serverFacts, Path: s.path, PID: s.cmd.Process.Pid,
		Size: w.size, Block: w.block, InFlight: w.inFlight, Commit: w.commit}
	if err := c.arena.runRole(ctx, &t, "stream", job); err != nil {
		return err
	}
	server := measurement{Bytes: t.Bytes, CPU: t.Server}
	r.rate, r.server, r.client = append(r.rate, t.rate()), append(r.server, server.cpuPerGiB()), append(r.client, t.cpuPerGiB())
	return nil
}
