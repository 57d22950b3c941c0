package esx_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
)

func TestParseURL(t *testing.T) {
	for in, user := range map[string]string{
		"esxi://root@esx1":                           "root",
		"esxi://root@esx1:8443/":                     "root",
		"esxi://root@[fe80::1]":                      "root",
		"vcenter://administrator@vsphere.local@vc":   "administrator@vsphere.local",
		"vcenter://administrator%40vsphere.local@vc": "administrator@vsphere.local",
		`vcenter://DOMAIN%5Cjoe@vc`:                  `DOMAIN\joe`,
	} {
		u, err := esx.ParseURL(in)
		if err != nil || u.User.Username() != user {
			t.Errorf("%s: %v, %v", in, u, err)
		}
	}
}

func TestParseURLRefuses(t *testing.T) {
	for _, in := range []string{
		"", "esx1", "root@esx1", "https://root@esx1", "esxi://esx1", "esxi://@esx1", "esxi://root@", "esxi://root@esx1/vm",
		"esxi://root@esx1?x=y", "esxi://root:hunter2@esx1", "esxi://root:hunter2@esx1:port", "esxi://root:hunter2%zz@esx1", "esxi://root:@esx1",
	} {
		u, err := esx.ParseURL(in)
		if !fault.Is(err, fault.Invalid) || fault.HintOf(err) == "" {
			t.Errorf("%q: %v, %v, hint %q", in, u, err, fault.HintOf(err))
		}
		if strings.Contains(fmt.Sprint(err)+fault.HintOf(err), "hunter2") {
			t.Errorf("%q: the error contains the password: %v", in, err)
		}
	}
}
