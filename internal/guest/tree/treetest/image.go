// Package treetest helps to test file systems that are read as trees.
package treetest

import (
	"compress/gzip"
	"errors"
	"io"
	"os"
	"testing"
)

// Unpacked returns the decompressed content of a gzip file, which is an image in testdata. It fails the
// test if the file is not readable.
func Unpacked(t testing.TB, path string) []byte {
	t.Helper()
	data, err := gunzipFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// gunzipFile returns the decompressed content of the file at path.
func gunzipFile(path string) (_ []byte, err error) {
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
