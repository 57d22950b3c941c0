package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/vmdk/vmdktest"
)

// formatSize is the size of the disks, and of the data of most.
const (
	formatSize    = 4 << 30                      // size of most disks in bytes
	formatSectors = formatSize / disk.SectorSize // size of most disks in sectors
	streamSize    = 2 << 30                      // size of the streamOptimized disk in bytes
)

// writeChain writes the files of a chain in dir and returns the path of the top layer.
func writeChain(dir string, layers ...vmdktest.Layer) (string, error) {
	d, err := vmdktest.Chain{Seed: 1, Layers: layers}.Write(dir)
	if err != nil {
		return "", err
	}
	return d.Path(), nil
}

// cowdChain writes three COWD layers with grains of 512 bytes. The base contains the
// whole disk, each other layer half of it in random grains.
func cowdChain(_ context.Context, dir string) (string, error) {
	l := vmdktest.Layer{Format: vmdktest.COWD, Sectors: formatSectors, Data: 0.5}
	base := l
	base.Data = 1
	return writeChain(dir, base, l, l)
}

// seSparseChain writes two seSparse layers. The upper one contains half of the disk.
func seSparseChain(_ context.Context, dir string) (string, error) {
	l := vmdktest.Layer{Format: vmdktest.SESparse, Sectors: formatSectors, Data: 0.5}
	base := l
	base.Data = 1
	return writeChain(dir, base, l)
}

// sparseDisk writes a monolithicSparse disk with 60 % data in runs of 64 grains.
func sparseDisk(_ context.Context, dir string) (string, error) {
	return writeChain(dir, vmdktest.Layer{Format: vmdktest.Sparse, Sectors: formatSectors, Data: 0.6, Run: 64, InOrder: true})
}

// flatDisk writes a flat disk with 60 % data.
func flatDisk(_ context.Context, dir string) (string, error) {
	return writeChain(dir, vmdktest.Layer{Sectors: formatSectors, Data: 0.6, Run: 64})
}

// rawDisk writes the contents of flatDisk to a file with the suffix of a raw image.
func rawDisk(ctx context.Context, dir string) (string, error) {
	if _, err := flatDisk(ctx, dir); err != nil {
		return "", err
	}
	raw := filepath.Join(dir, "disk.raw")
	return raw, os.Rename(filepath.Join(dir, "disk-flat.vmdk"), raw)
}

// streamDisk writes a streamOptimized disk with qemu-img. Half of the data compresses
// like programs, and half not at all, as in an export of a system disk.
func streamDisk(ctx context.Context, dir string) (string, error) {
	raw, path := filepath.Join(dir, "stream.raw"), filepath.Join(dir, "stream.vmdk")
	defer os.Remove(raw)
	if err := writePrograms(raw, streamSize); err != nil {
		return "", err
	}
	_, err := measureCommand(ctx, "qemu-img", "convert", "-f", "raw", "-O", "vmdk", "-o", "subformat=streamOptimized", "-m", "16", raw, path)
	return path, err
}

// writePrograms fills a file alternately with 1 MiB of this program and 1 MiB of random
// data.
func writePrograms(path string, size int64) (err error) {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const mib = 1 << 20
	noise := rand.NewChaCha8([32]byte{1})
	code := bytes.NewReader(program[:len(program)/mib*mib])
	for off := int64(0); off < size; off += 2 * mib {
		// The program is shorter than the disk, so it is repeated.
		if code.Len() == 0 {
			code.Reset(program[:len(program)/mib*mib])
		}
		if _, err := io.CopyN(f, code, mib); err != nil {
			return err
		}
		if _, err := io.CopyN(f, noise, mib); err != nil {
			return err
		}
	}
	return nil
}

const (
	hugeDeltaSize = 62 << 40    // size of the largest disk of VMware in bytes
	hugeSpan      = 4096 * 4096 // bytes of disk that one seSparse table maps
	hugeEvery     = 100         // one of this many tables exists, and is full
)

// makeHugeDelta writes a seSparse file of the largest disk size with 1 % allocated. The
// file contains only the header and the tables, 1.3 GiB; the grains are a hole.
func makeHugeDelta(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	const (
		sector     = disk.SectorSize
		spans      = hugeDeltaSize / hugeSpan
		tables     = (spans + hugeEvery - 1) / hugeEvery
		directory  = 4096
		firstTable = directory + spans*8/sector
		firstGrain = firstTable + tables*64
	)
	var head [2 * sector]byte
	// Offsets and values of the header's fields, as in package vmdk: magic and version
	// first, then sizes and positions in sectors.
	for at, v := range map[int]uint64{
		0: 0xCAFEBABE, 8: 0x200000001, 16: hugeDeltaSize / sector, 24: 8, 32: 64,
		80: 1, 88: 1, 96: 2, 104: 2, 112: 2048, 120: 2048, 128: directory, 136: spans * 8 / sector,
		144: firstTable, 152: tables * 64, 160: 8, 168: 8, 176: 16, 184: 8,
		192: firstGrain, 200: tables * 4096 * 8, sector: 0xCAFECAFE, sector + 8: tables,
	} {
		binary.LittleEndian.PutUint64(head[at:], v)
	}
	if _, err := f.WriteAt(head[:], 0); err != nil {
		return err
	}
	dir, table := make([]byte, spans*8), make([]byte, 4096*8)
	for n := range uint64(tables) {
		// An entry of the directory: bit 60 means that the table n exists.
		binary.LittleEndian.PutUint64(dir[n*hugeEvery*8:], 1<<60|n)
		for i := range uint64(4096) {
			grain := n*4096 + i
			// An entry of a table: type 3 is allocated; the grain's number is stored in
			// two parts.
			binary.LittleEndian.PutUint64(table[i*8:], 3<<60|grain&0xFFF<<48|grain>>12)
		}
		if _, err := f.WriteAt(table, (firstTable+int64(n)*64)*sector); err != nil {
			return err
		}
	}
	if _, err := f.WriteAt(dir, directory*sector); err != nil {
		return err
	}
	return f.Truncate((firstGrain + tables*4096*8) * sector)
}
