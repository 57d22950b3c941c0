package pve

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
	"strings"
	"time"
)

// newCertificate returns a self-signed pair, as a fresh installation of the node has, and the SHA-256
// fingerprint in Proxmox's notation: upper-case hex pairs with colons.
func newCertificate(node string) (tls.Certificate, string, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, "", err
	}
	t := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{Organization: []string{"Proxmox Virtual Environment"}, CommonName: node + ".lab"},
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(2, 0, 0),
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{node, node + ".lab"},
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, &key.PublicKey, key)
	sum := sha256.Sum256(der)
	print := strings.ReplaceAll(fmt.Sprintf("% X", sum[:]), " ", ":")
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, print, err
}
