package esx_test

import (
	"slices"
	"testing"
)

// neverCalled is what would make the package comment a lie; see TestOnlyPowerWrites.
func TestReadingChangesNothing(t *testing.T) {
	r := newVPX(t)
	s := r.dial(t)
	if _, err := s.VMs(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"CreateContainerView", "DestroyView", "Login", "RetrievePropertiesEx", "RetrieveServiceContent"}
	if got := r.methods(); !slices.Equal(got, want) {
		t.Fatalf("called %q, want %q", got, want)
	}
}
