package vsphere

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net"
	"strings"
	"time"
)

// certificate is a self-signed certificate, as a fresh installation of ESXi has, with its key.
type certificate struct {
	pair        tls.Certificate // certificate and private key
	fingerprint string          // SHA-256 of the certificate: upper-case hex pairs with colons
}

// newCertificate returns a new certificate for name and for the loopback addresses, valid for ten
// years.
func newCertificate(name string) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		return nil, err
	}
	t := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{Organization: []string{"VMware Installer"}, CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(10, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost", "localhost.localdomain"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	if err != nil {
		return nil, err
	}
	return certificateOf(tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}), nil
}

// certificateOf returns the certificate of a pair.
func certificateOf(pair tls.Certificate) *certificate {
	sum := sha256.Sum256(pair.Certificate[0])
	return &certificate{pair: pair, fingerprint: strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")}
}
