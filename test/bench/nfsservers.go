package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// nfsServers is a set of servers in separate processes that write to one file system.
type nfsServers struct {
	arena   *isolatedNet          // network of the servers
	dir     string                // folder of the exports
	servers map[string]*nfsServer // servers by name
}

// startServers starts servers with folders below dir. The caller must stop them.
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

// startServer starts one server by its name in the table.
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
		// The minimal server has no mount protocol and no names.
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

// stop ends all servers and their network.
func (c *nfsServers) stop() {
	for _, s := range c.servers {
		if s != nil {
			s.stop()
		}
	}
	c.arena.close()
}

// writeSpec describes how a file is written.
type writeSpec struct {
	size     int64 // bytes of the file
	block    int   // bytes of a WRITE
	inFlight int   // number of WRITEs without a reply
	commit   bool  // include a final COMMIT in the time
}

// results contains the rates of all servers by name.
type results map[string]*serverRates

// serverRates contains the results of one server, by round.
type serverRates struct{ rate, server, client []float64 } // MB/s, and CPU s/GiB of either side

// costNote returns the processor times for the note of a row.
func (r *serverRates) costNote() string {
	if len(r.client) == 0 {
		return fmt.Sprintf("%.2f CPU s/GiB", median(r.server))
	}
	return fmt.Sprintf("server %.2f, client %.2f CPU s/GiB", median(r.server), median(r.client))
}

// runRounds writes a file to each server in turn, in several rounds. Each file has a
// time limit, so that a server that hangs does not block the other measurements.
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

// writePatience limits the time of one file.
const writePatience = 2 * time.Minute

// runOnce writes one file and appends the result to r.
func (c *nfsServers) runOnce(ctx context.Context, name string, w writeSpec, r *serverRates) error {
	ctx, cancel := context.WithTimeout(ctx, writePatience)
	defer cancel()
	var t measurement
	// This entry has no server: the writes go to a file directly.
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
	// The server's processor time per GiB refers to the same bytes.
	server := measurement{Bytes: t.Bytes, CPU: t.Server}
	r.rate, r.server, r.client = append(r.rate, t.rate()), append(r.server, server.cpuPerGiB()), append(r.client, t.cpuPerGiB())
	return nil
}
