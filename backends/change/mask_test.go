package change

import (
	"encoding/base64"
	"strings"
	"testing"
)

// Keys in every form that a file of the host was seen to have. The marker is in
// the middle of each, so that a half-masked one shows.
func TestEveryFormOfAPrivateKeyIsMasked(t *testing.T) {
	const marker = "sEcReTmArKeR"
	body := "b3BlbnNzaC1rZXktdjEAAAAABG5v" + marker + "bmUAAAAEbm9uZQAAAAAAAAABAAAAMwAAAAtz"
	pem := "-----BEGIN RSA PRIVATE KEY-----\n" + body + "\n" + body + "\n-----END RSA PRIVATE KEY-----\n"
	in64 := base64.StdEncoding.EncodeToString([]byte(pem))
	for name, text := range map[string]string{
		"DSA":                 strings.ReplaceAll(pem, "RSA", "DSA"),
		"PKCS 8":              strings.ReplaceAll(pem, "RSA ", ""),
		"with headers":        strings.Replace(pem, "\n", "\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\n", 1),
		"with DOS line ends":  strings.ReplaceAll(pem, "\n", "\r\n"),
		"OpenSSH":             strings.ReplaceAll(pem, "RSA", "OPENSSH"),
		"SSH2":                "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nComment: \"x\"\n" + body + "\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n",
		"PGP":                 "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\n" + body + "\n=abcd\n-----END PGP PRIVATE KEY BLOCK-----\n",
		"PuTTY":               "PuTTY-User-Key-File-3: ssh-ed25519\nPublic-Lines: 1\nAAAA\nPrivate-Lines: 2\n" + body + "\n" + body + "\nPrivate-MAC: " + marker + "\n",
		"age":                 "# created\nAGE-SECRET-KEY-1" + strings.ToUpper(marker) + "QQQ\n",
		"minisign":            "untrusted comment: minisign encrypted secret key\nRWRTY0Iy" + marker + "=\n",
		"signify":             "untrusted comment: signify secret key\nRWRCSwAAAA" + marker + "\n",
		"a service account":   `{"type": "service_account", "private_key": "` + strings.ReplaceAll(pem, "\n", `\n`) + `", "client_email": "x@y"}` + "\n",
		"JSON, no armour":     `{"id": 1, "privateKey": "` + marker + `", "public": "kept"}` + "\n",
		"YAML":                "wg:\n  - private_key: " + marker + "\n    address: kept\n",
		"YAML, quoted":        "  \"private-key\": '" + marker + "'\n",
		"NetworkManager":      "[wireguard]\nprivate-key=" + marker + "\n",
		"WireGuard":           "[Interface]\nPrivateKey = " + marker + "\n[Peer]\nPresharedKey=" + marker + "\n",
		"WireGuard, slash":    "PrivateKey = /" + marker + strings.Repeat("A", 30) + "=\n",
		"kubeconfig":          "users:\n- user:\n    client-key-data: " + in64 + "\n    client-certificate-data: kept\n",
		"a Secret":            "data:\n  tls.key: " + in64 + "\n",
		"a Secret, wrapped":   "data:\n  " + in64[:76] + "\n  " + in64[76:152] + "\n  " + in64[152:] + "\n",
		"inside another text": "before " + strings.ReplaceAll(pem, "\n", " ") + " after\n",
	} {
		t.Run(name, func(t *testing.T) {
			got := string(MaskKeys([]byte(text)))
			for _, s := range []string{marker, strings.ToUpper(marker), in64[40:60], in64[len(in64)-30:]} {
				if strings.Contains(got, s) {
					t.Errorf("%q is shown:\n%s", s, got)
				}
			}
			if !strings.Contains(got, "[private key masked, sha256 ") {
				t.Errorf("nothing says that it was masked:\n%s", got)
			}
			if strings.Contains(text, "kept") && !strings.Contains(got, "kept") {
				t.Errorf("too much is masked:\n%s", got)
			}
			if again := string(MaskKeys([]byte(got))); again != got {
				t.Errorf("masked again:\n%s", again)
			}
		})
	}
}

func TestWhatIsNoPrivateKeyStays(t *testing.T) {
	cert := "-----BEGIN CERTIFICATE-----\n" + strings.Repeat("MIID", 30) + "\n-----END CERTIFICATE-----\n"
	for _, text := range []string{
		cert,
		"tls.crt: " + base64.StdEncoding.EncodeToString([]byte(cert)) + "\n",
		"-----BEGIN OPENSSH PUBLIC KEY-----\nabc\n-----END OPENSSH PUBLIC KEY-----\n",
		"-----BEGIN PGP PUBLIC KEY BLOCK-----\nabc\n-----END PGP PUBLIC KEY BLOCK-----\n",
		"ssl_certificate_key /etc/ssl/private/site.pem;\n",
		"private_key: /etc/ssl/private/site.pem\n",
		"private_key = ${SECRET}\nprivate_key: <replace>\n",
		"private_key: |\n  from elsewhere\n",
		"PrivateKeyFile=/etc/wireguard/key\n",
		"untrusted comment: minisign public key\nRWQf6LRCGA9i53mlYecO4IzT51TGPpvWucNSCh1CBM0QTaLn73Y7GFO3\n",
		"age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p\n",
		"PublicKey = abc\n# the private key is elsewhere\n",
	} {
		if got := string(MaskKeys([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
