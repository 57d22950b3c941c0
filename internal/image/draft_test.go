package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// refillDraft fills the rest of a draft, and checks the number of written chunks.
func refillDraft(t *testing.T, path string, chunks int) Draft {
	t.Helper()
	d, _, written := fillDraft(t, path, false)
	if written != chunks {
		t.Errorf("%d chunks were written, want %d", written, chunks)
	}
	return d
}

// newFilledDraft fills a draft and returns it with the root of its manifest.
func newFilledDraft(t *testing.T, path string, replace bool) (Draft, manifest.Hash) {
	t.Helper()
	d, root, _ := fillDraft(t, path, replace)
	return d, root
}

// fillDraft fills a draft. It returns the root of its manifest and the number of written chunks.
func fillDraft(t *testing.T, path string, replace bool) (Draft, manifest.Hash, int) {
	t.Helper()
	d := Draft{Final: File{Path: path, Format: Raw, Size: testSize}, Replace: replace}
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	r := &testJob{t: t, src: disk.NewPattern(testSize)}
	r.job = Job{Opener: d.File(), Path: d.File().Path, Manifest: d.Manifest(), Info: manifest.Info{Disk: "d", Size: testSize}}
	root, _, err := r.fill(6)
	if err != nil {
		t.Fatal(err)
	}
	return d, root, r.written
}

// checkPublished checks that the image at path is complete and no file of the draft remains.
func checkPublished(t *testing.T, path string, root manifest.Hash) {
	t.Helper()
	s, err := manifest.Load(path + ".manifest")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	info, err := os.Stat(path)
	if err != nil || info.Size() != testSize || s.Root() != root {
		t.Errorf("%v, %v, root %v", info, err, s.Root())
	}
	if left, _ := filepath.Glob(path + ".[pr]*"); len(left) > 0 {
		t.Errorf("files %v remain", left)
	}
}

func TestPublish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := newFilledDraft(t, path, false)
	if _, err := os.Stat(path); err == nil {
		t.Error("the image exists before it is published")
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	checkPublished(t, path, root)
}

func TestPublishCompletesAfterCrashBetweenRenames(t *testing.T) {
	for done := range 3 {
		path := filepath.Join(t.TempDir(), "x.raw")
		d, root := newFilledDraft(t, path, false)
		renames := [][2]string{{d.File().Path, path + ".ready"}, {d.Manifest(), path + ".manifest"}}
		for _, r := range renames[:done] {
			if err := os.Rename(r[0], r[1]); err != nil {
				t.Fatal(err)
			}
		}
		again := refillDraft(t, path, 0)
		if err := again.Publish(); err != nil {
			t.Fatal(err)
		}
		checkPublished(t, path, root)
	}
}

// An image that a crash left without a manifest does not get the manifest of an earlier image.
func TestManifestOfAnEarlierImageIsNotUsed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := newFilledDraft(t, path, false)
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	left, _, err := d.File().Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := left.Close(); err != nil {
		t.Fatal(err)
	}
	again := refillDraft(t, path, 6)
	if err := again.Publish(); err != nil {
		t.Fatal(err)
	}
	checkPublished(t, path, root)
}

func TestPublishDoesNotReplaceOtherFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := newFilledDraft(t, path, false)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); !fault.Is(err, fault.Conflict) || err.Error() != "publish image: "+path+" already exists" {
		t.Fatalf("Publish with another file at the path: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Fatalf("the other file contains %q, %v", text, err)
	}
	if _, err := os.Stat(path + ".manifest"); err == nil {
		t.Error("the other file got a manifest")
	}
	if err := d.Prepare(); !fault.Is(err, fault.Conflict) {
		t.Fatalf("Prepare with another file at the path: %v", err)
	}
	forced, _ := newFilledDraft(t, path, true)
	if err := forced.Publish(); err != nil {
		t.Fatal(err)
	}
	checkPublished(t, path, root)
}

func TestPrepareRefusesUnusablePaths(t *testing.T) {
	dir := t.TempDir()
	for path, kind := range map[string]fault.Kind{dir: fault.Conflict, filepath.Join(dir, "no", "x"): fault.NotFound, "/dev/null": fault.Conflict} {
		d := Draft{Final: File{Path: path, Format: Raw, Size: testSize}, Replace: true}
		if err := d.Prepare(); !fault.Is(err, kind) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestVerifyFindsABadChunkAndFillRepairsIt(t *testing.T) {
	eachFormat(t, func(t *testing.T, r *testJob) {
		r.fillRest(6)
		if report, err := r.job.Verify(t.Context(), manifest.VerifyOptions{}); err != nil || report.Chunks != 6 {
			t.Fatalf("%d chunks, %v", report.Chunks, err)
		}
		if err := zeroData(r.job.Path); err != nil {
			t.Fatal(err)
		}
		report, err := r.job.Verify(t.Context(), manifest.VerifyOptions{})
		if !fault.Is(err, fault.Corrupt) || report.BadChunks != 1 {
			t.Fatalf("%d bad chunks, %v", report.BadChunks, err)
		}
		r.fillRest(1)
		if _, err := r.job.Verify(t.Context(), manifest.VerifyOptions{}); err != nil {
			t.Error(err)
		}
	})
}
