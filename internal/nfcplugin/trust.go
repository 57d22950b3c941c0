package nfcplugin

import (
	"bytes"
	"context"
	"crypto/sha1" //nolint:gosec // SHA-1 is the form of thumbprints in vSphere
	"crypto/sha256"
	"crypto/x509"
	"fmt"
	"net"
	"strconv"

	"github.com/decamp/decamp/internal/esx"
	"github.com/decamp/decamp/internal/fault"
	"github.com/decamp/decamp/internal/knownhosts"
)

// addr returns the host:port of the API.
func (p Parameters) addr() string { return net.JoinHostPort(p.Server, strconv.Itoa(p.Port)) }

// trustServer decides whether the certificate of the server is accepted. It returns its SHA-256, which all
// later connections compare.
func (p Parameters) trustServer(ctx context.Context, o Options) (string, error) {
	chain, err := esx.CertificateChain(ctx, p.addr())
	if err != nil {
		return "", err
	}
	leaf := chain[0]
	sum := sha256.Sum256(leaf.Raw)
	pin := formatSum(sum[:])
	switch {
	case len(p.Thumbprint) > 0:
		return pin, p.compareThumbprint(leaf)
	case p.KnownHosts != "":
		return pin, p.pinFirstUse(leaf, pin, o)
	case p.Insecure:
		o.Warn(fmt.Sprintf("warning: the certificate of %s is not verified; set thumbprint=%s if it is correct, or known-hosts=FILE", p.Server, thumbprintOf(leaf, 20)))
		return pin, nil
	}
	return pin, p.verifyChain(chain)
}

// compareThumbprint fails if the certificate is not that of the parameter thumbprint.
func (p Parameters) compareThumbprint(leaf *x509.Certificate) error {
	shown := thumbprintOf(leaf, len(p.Thumbprint))
	if wanted := formatSum(p.Thumbprint); shown != wanted {
		return fault.New(fault.Denied, "the certificate of %s has another thumbprint: thumbprint=%s is required, %s is shown", p.Server, wanted, shown)
	}
	return nil
}

// pinFirstUse compares the certificate with the file of known hosts, or records it there.
func (p Parameters) pinFirstUse(leaf *x509.Certificate, pin string, o Options) error {
	known, err := knownhosts.Load(p.KnownHosts)
	if err != nil {
		return err
	}
	before, seen := known.Find(p.addr())
	switch {
	case !seen:
		o.Log.Info("certificate pinned at its first use", "host", p.addr(), "sha256", pin, "file", p.KnownHosts)
		return known.Add(p.addr(), pin, leaf.Subject.String())
	case before.SHA256 != pin:
		return fault.New(fault.Denied, "the certificate of %s changed: %s has %s, shown is %s; if the new one is correct, remove the entry from the file", p.addr(), p.KnownHosts, before.SHA256, pin)
	}
	return nil
}

// verifyChain verifies the certificates with the authorities of the system.
func (p Parameters) verifyChain(chain []*x509.Certificate) error {
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	if _, err := chain[0].Verify(x509.VerifyOptions{DNSName: p.Server, Intermediates: intermediates}); err != nil {
		return fault.New(fault.Denied, "the certificate of %s is not trusted: %w; if it is correct, set thumbprint=%s", p.Server, err, thumbprintOf(chain[0], 20))
	}
	return nil
}

// thumbprintOf returns the SHA-1 (20 bytes) or SHA-256 (32 bytes) of a certificate.
func thumbprintOf(c *x509.Certificate, size int) string {
	if size == sha1.Size {
		sum := sha1.Sum(c.Raw)
		return formatSum(sum[:])
	}
	sum := sha256.Sum256(c.Raw)
	return formatSum(sum[:])
}

// formatSum returns a sum as AA:BB:…, the form that vSphere shows.
func formatSum(sum []byte) string {
	var b bytes.Buffer
	for i, each := range sum {
		if i > 0 {
			b.WriteByte(':')
		}
		fmt.Fprintf(&b, "%02X", each)
	}
	return b.String()
}
