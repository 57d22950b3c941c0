package esx_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/nfc"
)

// nfcAnswers returns the replies of a server with an NFC service, in the form of published captures.
func nfcAnswers(t *testing.T, service, ticket string) func(call, http.ResponseWriter) bool {
	return func(c call, w http.ResponseWriter) bool {
		switch c.method {
		case "RetrieveInternalContent":
			return soapReply(w, c.method, `<returnval><agentManager type="AgentManager">ha-agent-mgr</agentManager>`+
				`<nfcService type="NfcService">`+service+`</nfcService><proxyService type="ProxyService">ha-proxy</proxyService></returnval>`)
		case "NfcGetVmFiles":
			for _, want := range []string{`xmlns="urn:vim25"`, ">" + service + "</_this>", `type="VirtualMachine"`, ">vm-7</vm>"} {
				if !strings.Contains(string(c.body), want) {
					t.Errorf("the call does not contain %s: %s", want, c.body)
				}
			}
			return soapReply(w, c.method, "<returnval>"+ticket+"</returnval>")
		}
		return false
	}
}

func TestNFCTicket(t *testing.T) {
	for name, v := range map[string]struct {
		service, xml string
		want         nfc.Ticket
	}{
		"ESXi": {"ha-nfc-service", `<port>902</port><sslThumbprint>AA:BB</sslThumbprint><service>nfc</service><serviceVersion>1.1</serviceVersion><sessionId>52-ab</sessionId>`,
			nfc.Ticket{Port: 902, Thumbprint: "AA:BB", Service: "nfc", Session: "52-ab"}},
		"vCenter": {"nfcService", `<host>10.0.0.7</host><port>902</port><sslCertificate>PEM</sslCertificate><service>vpxa-nfc</service><serviceVersion>1.1</serviceVersion><sessionId>52-cd</sessionId>`,
			nfc.Ticket{Host: "10.0.0.7", Port: 902, Certificate: "PEM", Service: "vpxa-nfc", Session: "52-cd"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newESX(t)
			r.set(func(r *simServer) { r.answer = nfcAnswers(t, v.service, v.xml) })
			got, err := r.dial(t).NFCTicket(t.Context(), "vm-7")
			if err != nil || got != v.want {
				t.Errorf("ticket %+v, error %v", got, err)
			}
			if text := fmt.Sprintf("%v %+v %#v %s", got, got, got, &got); strings.Contains(text, "52-") {
				t.Errorf("the printed ticket contains its secret: %s", text)
			}
		})
	}
}

func TestNFCTicketRefused(t *testing.T) {
	for kind, want := range map[string]fault.Kind{
		"NoPermission": fault.Denied, "ManagedObjectNotFound": fault.NotFound, "MethodNotFound": fault.Unsupported,
	} {
		r := newESX(t)
		members := map[string]string{
			"NoPermission":          `<object type="VirtualMachine">vm-7</object><privilegeId>VirtualMachine.Provisioning.GetVmFiles</privilegeId>`,
			"ManagedObjectNotFound": `<obj type="VirtualMachine">vm-7</obj>`,
			"MethodNotFound":        `<receiver type="NfcService">nfcService</receiver><method>NfcGetVmFiles</method>`,
		}[kind]
		answer := nfcAnswers(t, "nfcService", "")
		r.set(func(r *simServer) {
			r.answer = func(c call, w http.ResponseWriter) bool {
				if c.method == "NfcGetVmFiles" {
					return soapFault(w, kind, members)
				}
				return answer(c, w)
			}
		})
		if _, err := r.dial(t).NFCTicket(t.Context(), "vm-7"); !fault.Is(err, want) {
			t.Errorf("%s: got %v (%v), want %v", kind, err, fault.KindOf(err), want)
		}
	}
}

func TestServerWithoutNFC(t *testing.T) {
	r := newESX(t)
	r.set(func(r *simServer) {
		r.answer = func(c call, w http.ResponseWriter) bool {
			return c.method == "RetrieveInternalContent" && soapReply(w, c.method, `<returnval><proxyService type="ProxyService">p</proxyService></returnval>`)
		}
	})
	if _, err := r.dial(t).NFCTicket(t.Context(), "vm-7"); !fault.Is(err, fault.Unsupported) || fault.HintOf(err) == "" {
		t.Errorf("got %v", err)
	}
}

func TestNFCHostFacts(t *testing.T) {
	r := newESX(t)
	s := r.dial(t)
	hosts, err := s.Hosts(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	version, err := s.HostVersion(t.Context(), hosts[0].Ref)
	if err != nil || version == "" {
		t.Errorf("version %q, error %v", version, err)
	}
	nics, err := s.VMkernelNICs(t.Context(), hosts[0].Ref)
	if err != nil || len(nics) == 0 || nics[0].Device != "vmk0" || nics[0].Address == "" || nics[0].Backup || nics[0].MTU != 1500 {
		t.Errorf("interfaces %+v, error %v", nics, err)
	}
}
