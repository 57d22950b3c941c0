package migrate_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/decamp/decamp/internal/migrate"
	"github.com/decamp/decamp/internal/targets"
)

// newRecordTestBed returns a test bed with relative paths, which do not depend on the location of the state directory.
func newRecordTestBed(t *testing.T) *testBed {
	t.Helper()
	t.Chdir(t.TempDir())
	if err := os.Mkdir("images", 0o700); err != nil {
		t.Fatal(err)
	}
	b := newTestBed(t)
	b.dir = "images"
	return b
}

// Each directory in testdata is the state of one release that was killed in commit, after all
// other steps (see testdata/README.md). Every later release must publish
// the same VM from it as that release.
func TestRecordedStateOfEveryReleaseIsPublished(t *testing.T) {
	releases, err := filepath.Glob("testdata/v*")
	if err != nil || len(releases) == 0 {
		t.Fatalf("no recorded state in testdata: %v", err)
	}
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) {
			state, err := filepath.Abs(release)
			if err != nil {
				t.Fatal(err)
			}
			b := newRecordTestBed(t)
			if err := os.CopyFS(filepath.Join("images", "state"), os.DirFS(state)); err != nil {
				t.Fatal(err)
			}
			if _, err := b.migrate(migrate.Permit{}); err != nil {
				t.Fatal(err)
			}
			var want targets.Definition
			text, err := os.ReadFile(filepath.Join(state, "published.json"))
			if err := errors.Join(err, json.Unmarshal(text, &want)); err != nil {
				t.Fatal(err)
			}
			want.Hardware = targets.Compat // the only hardware of those releases
			if !reflect.DeepEqual(*b.published, want) {
				t.Errorf("published %+v, want %+v", *b.published, want)
			}
			if len(b.reads) > 0 {
				t.Error("disks were read again")
			}
		})
	}
}

// TestRecord writes the state directory of this release. See testdata/README.md.
func TestRecord(t *testing.T) {
	dir := os.Getenv("MIGRATE_RECORD")
	if dir == "" {
		dir = filepath.Join(t.TempDir(), "state") // every test run also checks the recording
	}
	whole := newRecordTestBed(t)
	if _, err := whole.migrate(migrate.Permit{}); err != nil {
		t.Fatal(err)
	}
	b := newRecordTestBed(t)
	if !b.crashAt(int64(len(whole.ops)), migrate.Permit{}) || b.published == nil {
		t.Fatal("the run did not stop in commit after the VM was published")
	}
	text, err := json.MarshalIndent(b.published, "", "  ")
	if err == nil {
		err = os.WriteFile("images/state/published.json", append(text, '\n'), 0o600)
	}
	err = errors.Join(err, os.Remove("images/state/lock"), os.CopyFS(dir, os.DirFS("images/state")))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.db")); err != nil {
		t.Fatal(err)
	}
}
