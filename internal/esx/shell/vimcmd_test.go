package shell

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/inventory"
)

// The listings are published output of several versions of ESXi.
func TestSnapshotListings(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []Listed
	}{
		"none": {"Get Snapshot:\n", nil},
		"one":  {"Get Snapshot:\n|-ROOT\n--Snapshot Name        : a: b \n--Snapshot Id        : 3\n--Snapshot Desciption  : \n--Snapshot Created On  : 6/22/2017 16:18:14\n--Snapshot State       : powered off\n", []Listed{{3, "a: b "}}},
		"children, aligned, CRLF": {"Get Snapshot:\r\n|-ROOT\r\n--Snapshot Name        : one\r\n--Snapshot Id          : 1\r\n--Snapshot Description : x\r\n--|-CHILD\r\n----Snapshot Name        : two\r\n----Snapshot Id          : 22\r\n",
			[]Listed{{1, "one"}, {22, "two"}}},
		"no name": {"--Snapshot Id : 4\n", []Listed{{4, ""}}},
		"words of a listing in a description": {"|-ROOT\n--Snapshot Name        : one\n--Snapshot Id        : 3\n--Snapshot Desciption  : first\nSnapshot Id : 77\n--Snapshot Id : 78\n--Snapshot Name : x\n--Snapshot Id : 79\n--Snapshot Created On  : 6/22/2017 16:18:14\n--Snapshot State       : powered off\n--|-CHILD\n--Snapshot Id : 80\n----Snapshot Name        : two\n----Snapshot Id        : 4\n",
			[]Listed{{3, "one"}, {4, "two"}}},
		"words of a listing in a name": {"|-ROOT\n--Snapshot Name        : Snapshot Id : 5\n--Snapshot Id        : 3\n", []Listed{{3, "Snapshot Id : 5"}}},
		"too large":                    {"--Snapshot Name : n\n--Snapshot Id : 99999999999\n", nil},
		"not a listing":                {"vim-cmd: command not found\n", nil},
	} {
		if got := parseSnapshots(c.text); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

func TestVimCmdErrors(t *testing.T) {
	const busy = "(vim.fault.TaskInProgress) {\n   faultCause = (vmodl.MethodFault) null, \n   msg = \"\"\n}\n"
	for _, c := range []struct {
		status int
		output string
		want   fault.Kind
	}{
		{0, "Create Snapshot:\nCreate snapshot failed\n", fault.Conflict},
		{1, "", fault.Conflict},
		{1, busy, fault.Transient},
		{0, busy, fault.Transient},
		{1, "(vim.fault.NotFound) {\n", fault.NotFound},
		{255, "(vim.fault.NoPermission) {\n", fault.Denied},
		{1, "(vmodl.fault.NotEnoughLicenses) {\n", fault.Conflict},
	} {
		err := vimCmdError("snapshot.create", c.status, c.output)
		if err == nil || fault.KindOf(err) != c.want || fault.HintOf(err) == "" {
			t.Errorf("status %d, %q: %v, want %s with a remedy", c.status, c.output, err, c.want)
		}
	}
	if err := vimCmdError("snapshot.create", 0, "Create Snapshot:\n"); err != nil {
		t.Error(err)
	}
}

// Words in names and descriptions of the listing that snapshot.remove prints are not errors.
func TestSnapshotNamesAreNotParsedAsErrors(t *testing.T) {
	const listing = "|-ROOT\n--Snapshot Name        : before failed upgrade\n--Snapshot Id        : 1\n" +
		"--Snapshot Desciption  : (vim.fault.TaskInProgress) {\nRemove snapshot failed\n--Snapshot State       : failed\n" +
		"--Snapshot Created On  : 6/22/2017 16:18:14\n--Snapshot State       : powered off\n"
	for _, output := range []string{"Remove Snapshot:\n" + listing, "Get Snapshot:\r\n" + strings.ReplaceAll(listing, "\n", "\r\n"),
		"|-ROOT\n--Snapshot Name : failed\n"} {
		if err := vimCmdError("snapshot.remove", 0, output); err != nil {
			t.Errorf("%q: %v", output, err)
		}
	}
	for _, output := range []string{"Remove snapshot failed\n" + listing, listing + "Remove snapshot failed\n"} {
		if err := vimCmdError("snapshot.remove", 0, output); !fault.Is(err, fault.Conflict) {
			t.Errorf("%q: %v", output, err)
		}
	}
	if err := vimCmdError("snapshot.remove", 1, listing+"(vim.fault.NoPermission) {\n"); !fault.Is(err, fault.Denied) {
		t.Error(err)
	}
}

func TestNumbersOfVMsAreCompared(t *testing.T) {
	const list = "Vmid   Name   File   Guest OS   Version   Annotation\n1   a b   [ds 1] a b/a b.vmx   other   vmx-21   12 [ds 1] c/c.vmx\n12   c   [ds 1] c/c.vmx   other   vmx-21\nsecond line of an annotation\n"
	for _, c := range []struct {
		vm   inventory.MoRef
		file string
		want bool
	}{{"1", "a b/a b.vmx", true}, {"12", "c/c.vmx", true}, {"12", "a b/a b.vmx", false}, {"2", "c/c.vmx", false}} {
		if got := listsVM([]byte(list), c.vm, inventory.Path{Datastore: "ds 1", File: c.file}); got != c.want {
			t.Errorf("VM %s with %s: %v", c.vm, c.file, got)
		}
	}
}

// For any output, the number of a snapshot is not negative, and its name occurs in the output. A nonzero
// status is an error.
func FuzzVimCmd(f *testing.F) {
	f.Add("Get Snapshot:\n|-ROOT\n--Snapshot Name        : one\n--Snapshot Id        : 1\n", 0)
	f.Add("(vim.fault.TaskInProgress) {\n", 1)
	f.Fuzz(func(t *testing.T, text string, status int) {
		for _, s := range parseSnapshots(text) {
			if s.ID < 0 || !strings.Contains(text, s.Name) {
				t.Errorf("got %+v from %q", s, text)
			}
		}
		if err := vimCmdError("x", status, text); err == nil && status != 0 {
			t.Error("a nonzero status without an error")
		}
		listsVM([]byte(text), "1", inventory.Path{Datastore: "d", File: "f"})
	})
}
