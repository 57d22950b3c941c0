package kubevirt

import (
	"reflect"
	"testing"

	"github.com/decamp/decamp/internal/fault"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]Spelling{
		"/srv/out":                         {Folder: "/srv/out"},
		"out?network=pod&storageClass=a.b": {Folder: "out", Options: Options{Network: Pod, StorageClass: "a.b"}},
		"?kubeconfig=/etc/k&context=x&namespace=vms&uploadProxy=https://p:1": {
			Kubeconfig: "/etc/k", Context: "x", UploadProxy: "https://p:1", Options: Options{Namespace: "vms"},
		},
		"x?accessMode=ReadWriteOnce&volumeMode=Block&network=multus:a/b": {
			Folder: "x", Options: Options{AccessMode: "ReadWriteOnce", VolumeMode: "Block", Network: "multus:a/b"},
		},
	} {
		got, err := Parse(text)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"", "?namespace=x", "x?nope=1", "x?namespace=Up", "x?namespace=a&namespace=b", "x?namespace=../y", "x?storageClass=-", "x?accessMode=RWO",
		"x?volumeMode=block", "x?network=bridge:br0", "x?kubeconfig=k", "x?context=c", "x?uploadProxy=https://p", "?kubeconfig=k&uploadProxy=http://p",
		"x?%zz",
	} {
		if s, err := Parse(text); !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%q is %+v, %v", text, s, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("/srv/out?namespace=vms&storageClass=x")
	f.Add("?kubeconfig=~/.kube/config&context=a")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse(text)
		if err == nil && (s.Folder == "") == (s.Kubeconfig == "") {
			t.Errorf("%q is %+v", text, s)
		}
		if err != nil && !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", text, err)
		}
	})
}
