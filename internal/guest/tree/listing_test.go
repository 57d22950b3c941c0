package tree_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/guest/budget"
	"github.com/decamp/decamp/internal/guest/tree"
)

// Entries and their names are charged until Close.
func TestListing(t *testing.T) {
	limits := budget.Examination()
	limits.Memory = 1 << 20
	b, cancel := budget.New(t.Context(), limits)
	defer cancel()
	l := tree.NewListing(b)
	names := 0
	for i := range 1000 {
		e := tree.Entry{Name: fmt.Sprintf("name %d", i), Kind: tree.File}
		if err := l.Add(e); err != nil {
			t.Fatal(err)
		}
		names += len(e.Name)
	}
	const entry = 24
	if got := b.Used().Memory; got != int64(1024*entry+names) || l.Len() != 1000 {
		t.Errorf("%d bytes are charged for %d entries", got, l.Len())
	}
	if all := l.Close(); len(all) != 1000 || all[7].Name != "name 7" || b.Used().Memory != 0 || l.Close() != nil {
		t.Errorf("%d entries, %+v", len(all), b.Used())
	}
	var limit *budget.Error
	for err := error(nil); !errors.As(err, &limit); {
		if err = l.Add(tree.Entry{Name: strings.Repeat("x", 1000)}); l.Len() > 1100 {
			t.Fatal("the limit is not reached")
		}
	}
	if l.Close(); b.Used().Memory != 0 {
		t.Errorf("after Close: %+v", b.Used())
	}
}
