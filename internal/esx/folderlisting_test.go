package esx

import (
	"slices"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/inventory"
)

func TestParseListing(t *testing.T) {
	page := `<html><body><h1>Index of [datastore1] vm</h1><table>
<tr><td><A HREF='/folder?dcPath=ha-datacenter&amp;dsName=datastore1'>Parent Datastore</a></td></tr>
<tr><td><a href="/folder/vm/vm.vmdk?dcPath=ha-datacenter&amp;dsName=datastore1">vm.vmdk</a></td><td align="right">512</td></tr>
<tr><td><a href="/folder/vm/a%20%26%20%25b-flat.vmdk?dcPath=ha-datacenter&dsName=datastore1">a &amp; %b-fl..&gt;</a></td></tr>
<tr><td><a href="/folder/vm/sub/?dcPath=ha-datacenter&dsName=datastore1">sub</a></td></tr>
<tr><td><a href="/folder/vm/logs?dcPath=ha-datacenter&dsName=datastore1">logs/</a></td></tr>
<tr><td><a href="/folder/vm/vm.vmdk?dcPath=ha-datacenter&dsName=datastore1">again</a></td></tr>
<a href="https://example.org/x?dsName=y">elsewhere</a> <a href="?sort=name">sort</a> <a href=unquoted>x</a>
</table></body></html>`
	want := []inventory.File{{Name: "vm.vmdk"}, {Name: "a & %b-flat.vmdk"}, {Name: "sub", Folder: true}, {Name: "logs", Folder: true}}
	if got := parseListing(page); !slices.Equal(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestListingIgnoresForeignLinks(t *testing.T) {
	for _, target := range []string{
		"/folder/..?dsName=x", "/folder/vm/%2e%2e?dsName=x", "/folder/vm/a%2Fb?dsName=x", "/folder/vm/%00?dsName=x",
		"/folder/vm/%zz?dsName=x", "/sdk/x?dsName=x", "/folder/?dsName=x", "/folder/vm/.?dsName=x",
	} {
		if got := parseListing(`<a href="` + target + `">x</a>`); len(got) != 0 {
			t.Errorf("%s: got %+v, want no file", target, got)
		}
	}
}

func FuzzListing(f *testing.F) {
	f.Add(`<a href="/folder/vm/vm.vmdk?dcPath=d&amp;dsName=s">vm.vmdk</a>`)
	f.Add(`<A HREF='/folder/vm/?dsName=s'>vm/`)
	f.Add(`href="href='href=`)
	f.Add(strings.Repeat(`<a href="/folder/%41?dsName=`, 50))
	f.Fuzz(func(t *testing.T, page string) {
		names := map[string]bool{}
		for _, e := range parseListing(page) {
			if !isName(e.Name) || strings.Contains(e.Name, "/") {
				t.Fatalf("%q is not a file name", e.Name)
			}
			if names[e.Name] {
				t.Fatalf("%q is listed twice", e.Name)
			}
			names[e.Name] = true
		}
	})
}
