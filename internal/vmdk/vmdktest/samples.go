package vmdktest

import (
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/decamp/decamp/test/repository"
)

// Samples returns the folder of files that VMware's products or fuzzers created: $DECAMP_SAMPLES, or
// shared/samples beside the project. They have other licences and are not part of the project;
// docs/formats/vmdk.md has their origins. If the folder does not exist, Samples logs that and returns
// "".
func Samples(t testing.TB) string {
	t.Helper()
	root, err := repository.Root()
	if err != nil {
		t.Fatal(err)
	}
	folder := cmp.Or(os.Getenv("DECAMP_SAMPLES"), filepath.Join(root, "..", "shared", "samples"))
	if _, err := os.Stat(folder); err != nil {
		t.Logf("no sample images, only generated ones are tested: %v", err)
		return ""
	}
	return folder
}

// OpenSample opens a file and returns its name. A file whose name ends in .gz or .bz2 is decompressed,
// and the ending removed from name.
func OpenSample(path string) (r io.ReadCloser, name string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	name = filepath.Base(path)
	switch filepath.Ext(name) {
	case ".bz2":
		return decompressedFile{bzip2.NewReader(f), f}, strings.TrimSuffix(name, ".bz2"), nil
	case ".gz":
		z, err := gzip.NewReader(f)
		if err != nil {
			return nil, "", errors.Join(err, f.Close())
		}
		return decompressedFile{z, f}, strings.TrimSuffix(name, ".gz"), nil
	}
	return f, name, nil
}

// A decompressedFile reads decompressed data and closes the compressed file.
type decompressedFile struct {
	io.Reader
	io.Closer
}

// SampleHeads returns up to most bytes from the beginning of each sample, as seeds for a fuzzer.
func SampleHeads(t testing.TB, most int64) [][]byte {
	t.Helper()
	folder := Samples(t)
	if folder == "" {
		return nil
	}
	paths, err := filepath.Glob(filepath.Join(folder, "*.*"))
	if err != nil {
		t.Fatal(err)
	}
	var heads [][]byte
	for _, path := range paths {
		r, _, err := OpenSample(path)
		if err != nil {
			t.Fatal(err)
		}
		head, err := io.ReadAll(io.LimitReader(r, most))
		if err := errors.Join(err, r.Close()); err != nil {
			t.Fatal(err)
		}
		heads = append(heads, head)
	}
	return heads
}
