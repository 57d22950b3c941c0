package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/disk/rawfile"
	"github.com/decamp/decamp/internal/manifest"
	"github.com/decamp/decamp/internal/nfs"
	"github.com/decamp/decamp/internal/writebehind"
)

// landExport is the path that our servers export.
const landExport = "/land"

// serverJob is the input of childServe.
type serverJob struct {
	Dir      string `json:"dir"`      // directory of the names and the images
	Size     int64  `json:"size"`     // size of each image
	Manifest bool   `json:"manifest"` // hash every chunk

	// Commit is the duration of a flush. If it is not 0, the server flushes each WRITE.
	Commit time.Duration `json:"commit"`

	// Rate limits the storage in bytes per second; 0 for no limit.
	Rate   int64 `json:"rate"`
	Memory int64 `json:"memory"` // Memory limits the unwritten data in bytes; 0 for decamp's default.

	// At is the address to listen on, with the standard ports of NFS. If it is empty,
	// the server listens on loopback with other ports.
	At string `json:"at"`
}

// listenPorts returns the addresses to listen on.
func (j serverJob) listenPorts() nfs.Ports {
	if j.At == "" {
		return nfs.Ports{NFS: "127.0.0.1:0", Portmap: "127.0.0.1:0"}
	}
	return nfs.Ports{NFS: net.JoinHostPort(j.At, "2049"), Portmap: net.JoinHostPort(j.At, "111")}
}

// admitsClient accepts loopback clients, and all clients if the server runs in a
// separate network namespace.
func (j serverJob) admitsClient(who netip.Addr) bool { return who.IsLoopback() || j.At != "" }

// serverFacts is the output of a server's process once it listens.
type serverFacts struct {
	Addr    string `json:"addr"`    // address of the NFS server
	Portmap string `json:"portmap"` // address of the port mapper
}

// childServe runs an NFS server with the contents of a landing until its input ends.
func childServe(ctx context.Context, args []string) (err error) {
	var job serverJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	lander := &imageOpener{job: job, pool: writebehind.NewPool(cmp.Or(job.Memory, landMemory))}
	s, err := nfs.New(nfs.Options{
		Exports: []nfs.Export{{Path: landExport, Dir: job.Dir, Open: lander.openFile}},
		Admit:   job.admitsClient, Pool: lander.pool, Log: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})),
	})
	if err != nil {
		return err
	}
	l, err := nfs.Listen(ctx, job.listenPorts())
	if err != nil {
		return errors.Join(err, s.Close())
	}
	facts := serverFacts{Addr: l.NFS.Addr().String(), Portmap: l.Portmap.Addr().String()}
	if err := json.NewEncoder(os.Stdout).Encode(facts); err != nil {
		return err
	}
	go func() {
		// The parent closes the input to stop the server.
		_, _ = io.Copy(io.Discard, os.Stdin) // an error also means that the parent ended
		_ = s.Close()                        // the images are not used after the measurement
	}()
	return s.Run(ctx, l)
}

// landMemory is decamp's default limit of unwritten data, in bytes.
const landMemory = 1 << 30

// imageOpener opens an image for each file with the name of a disk.
type imageOpener struct {
	job  serverJob         // options of the server
	pool *writebehind.Pool // buffers shared by all images
	disk sync.Mutex        // held during a commit
}

// openFile returns the contents of a file, or nil for files that are not disks.
func (l *imageOpener) openFile(name string) (nfs.Content, error) {
	if !strings.HasSuffix(name, diskSuffix) {
		return nil, nil
	}
	if l.job.Commit > 0 {
		f, err := os.OpenFile(filepath.Join(l.job.Dir, name), os.O_RDWR, 0)
		return &syncFile{File: f, lander: l}, err
	}
	return l.createImage(filepath.Join(l.job.Dir, name+".image"))
}

// diskSuffix ends the names of files with disk data.
const diskSuffix = "-flat.vmdk"

// createImage creates an image, with a manifest if the job requires it.
func (l *imageOpener) createImage(path string) (nfs.Content, error) {
	c := &landedImage{path: path}
	var err error
	if c.target, err = rawfile.Create(path, l.job.Size, rawfile.Options{}); err != nil {
		return nil, err
	}
	// The limit applies below the write-behind buffers, as with a slow disk.
	if l.job.Rate > 0 {
		c.target = &slowTarget{Target: c.target, rate: l.job.Rate}
	}
	var log manifest.Ledger // no manifest if nil
	if l.job.Manifest {
		if c.log, err = manifest.Create(path+".manifest", manifest.Info{Disk: "bench", Size: l.job.Size}); err != nil {
			return nil, errors.Join(err, c.Close())
		}
		log = c.log
	}
	if c.File, err = writebehind.New(c.target, log, l.pool, writebehind.Options{Fresh: true}); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// landedImage is an image that receives a disk. Closing it removes its files.
type landedImage struct {
	*writebehind.File
	target disk.Target   // file of the image
	log    *manifest.Log // manifest of the image; nil without hashes
	path   string        // path of the image
}

// Close is part of nfs.Content.
func (c *landedImage) Close() error {
	var errs []error
	if c.File != nil {
		errs = append(errs, c.File.Close())
	}
	if c.log != nil {
		errs = append(errs, c.log.Close(), os.Remove(c.path+".manifest"))
	}
	return errors.Join(append(errs, c.target.Close(), os.Remove(c.path))...)
}

// syncFile is a file on a server whose export is sync. The reply to each WRITE waits
// for a commit, and the disk performs one commit at a time. The data stays in the page
// cache, so the commits are the only cost.
type syncFile struct {
	*os.File
	lander *imageOpener // server with the lock of the disk
}

// Write is part of nfs.Content.
func (s *syncFile) Write(ctx context.Context, b *nfs.Buffer, off int64) error {
	defer b.Release()
	if _, err := s.WriteAt(b.Bytes(), off); err != nil {
		return err
	}
	return s.Commit(ctx)
}

// Commit is part of nfs.Content.
func (s *syncFile) Commit(context.Context) error {
	s.lander.disk.Lock()
	defer s.lander.disk.Unlock()
	time.Sleep(s.lander.job.Commit)
	return nil
}

// ReadAt is part of nfs.Content.
func (s *syncFile) ReadAt(_ context.Context, p []byte, off int64) (int, error) {
	return s.File.ReadAt(p, off)
}

// Truncate is part of nfs.Content.
func (s *syncFile) Truncate(_ context.Context, size int64) error { return s.File.Truncate(size) }

// Size is part of nfs.Content.
func (s *syncFile) Size() int64 {
	info, err := s.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}

// childSink is the minimal server: it reads WRITEs from one connection after the other,
// acknowledges them, and discards the data or writes it behind.
func childSink(_ context.Context, args []string) error {
	var job sinkJob
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	if err := json.NewEncoder(os.Stdout).Encode(serverFacts{Addr: l.Addr().String()}); err != nil {
		return err
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = job.serveConn(conn.(*net.TCPConn)) // ends when its client closes the connection
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
