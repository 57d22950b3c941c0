// Package treetest helps to test file systems that are read as trees.
package treetest

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"testing"
)

// Unpacked returns what a gzip file holds: an image of testdata.
func Unpacked(t testing.TB, path string) []byte {
	t.Helper()
	data, err := unpack(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func unpack(path string) (_ []byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}
