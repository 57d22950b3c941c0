package image

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/decamp/decamp/internal/disk"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/manifest"
)

// filled fills what is left of a draft, and checks how many chunks that were.
func filled(t *testing.T, path string, chunks int) Draft {
	t.Helper()
	d, _, written := fillDraft(t, path, false)
	if written != chunks {
		t.Errorf("%d chunks were written, want %d", written, chunks)
	}
	return d
}

// drafted fills a draft and returns it with the root of its manifest.
func drafted(t *testing.T, path string, replace bool) (Draft, manifest.Hash) {
	t.Helper()
	d, root, _ := fillDraft(t, path, replace)
	return d, root
}

func fillDraft(t *testing.T, path string, replace bool) (Draft, manifest.Hash, int) {
	t.Helper()
	d := Draft{Final: File{Path: path, Format: Raw, Size: testSize}, Replace: replace}
	if err := d.Prepare(); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, src: disk.NewPattern(testSize)}
	r.job = Job{Opener: d.File(), Path: d.File().Path, Manifest: d.Manifest(), Info: manifest.Info{Disk: "d", Size: testSize}}
	root, _, err := r.fill(6)
	if err != nil {
		t.Fatal(err)
	}
	return d, root, r.written
}

// published checks that path is complete and nothing else is left beside it.
func published(t *testing.T, path string, root manifest.Hash) {
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
		t.Errorf("left behind: %v", left)
	}
}

func TestPublish(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := drafted(t, path, false)
	if _, err := os.Stat(path); err == nil {
		t.Error("the image is there before it was published")
	}
	if err := d.Publish(); err != nil {
		t.Fatal(err)
	}
	published(t, path, root)
}

func TestCrashBetweenTheRenamesIsMended(t *testing.T) {
	for done := range 3 {
		path := filepath.Join(t.TempDir(), "x.raw")
		d, root := drafted(t, path, false)
		renames := [][2]string{{d.File().Path, path + ".ready"}, {d.Manifest(), path + ".manifest"}}
		for _, r := range renames[:done] {
			if err := os.Rename(r[0], r[1]); err != nil {
				t.Fatal(err)
			}
		}
		again := filled(t, path, 0)
		if err := again.Publish(); err != nil {
			t.Fatal(err)
		}
		published(t, path, root)
	}
}

// An image that a crash left without a manifest must not get that of an earlier one.
func TestManifestOfAnEarlierImageIsNotTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := drafted(t, path, false)
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
	again := filled(t, path, 6)
	if err := again.Publish(); err != nil {
		t.Fatal(err)
	}
	published(t, path, root)
}

func TestNothingIsReplacedUnasked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.raw")
	d, root := drafted(t, path, false)
	if err := os.WriteFile(path, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := d.Publish(); !fault.Is(err, fault.Conflict) || err.Error() != "publish image: "+path+" already exists" {
		t.Fatalf("publishing over another file: %v", err)
	}
	if text, err := os.ReadFile(path); string(text) != "mine" {
		t.Fatalf("it holds %q, %v", text, err)
	}
	if _, err := os.Stat(path + ".manifest"); err == nil {
		t.Error("a manifest lies beside a file that it is not of")
	}
	if err := d.Prepare(); !fault.Is(err, fault.Conflict) {
		t.Fatalf("preparing over another file: %v", err)
	}
	forced, _ := drafted(t, path, true)
	if err := forced.Publish(); err != nil {
		t.Fatal(err)
	}
	published(t, path, root)
}

func TestPrepareRefusesWhatIsNoPlaceForAFile(t *testing.T) {
	dir := t.TempDir()
	for path, kind := range map[string]fault.Kind{dir: fault.Conflict, filepath.Join(dir, "no", "x"): fault.NotFound, "/dev/null": fault.Conflict} {
		d := Draft{Final: File{Path: path, Format: Raw, Size: testSize}, Replace: true}
		if err := d.Prepare(); !fault.Is(err, kind) {
			t.Errorf("%s: %v", path, err)
		}
	}
}

func TestVerifyFindsAFlippedBitAndTheNextFillMendsIt(t *testing.T) {
	each(t, func(t *testing.T, r *rig) {
		r.done(6)
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
		r.done(1)
		if _, err := r.job.Verify(t.Context(), manifest.VerifyOptions{}); err != nil {
			t.Error(err)
		}
	})
}
