package server

import (
	"net/http"
	"testing"
)

// Whose a request is: the key's name before the address, and no address in the disguise of a key.
func TestClient(t *testing.T) {
	for _, c := range []struct{ key, remote, want string }{
		{"team-a", "10.0.0.7:40001", "key team-a"},
		{"", "10.0.0.7:40001", "10.0.0.7"},
		{"", "10.0.0.7:40002", "10.0.0.7"},
		{"", "[2001:db8:1:2:3:4:5:6]:40001", "2001:db8:1:2::/64"},
		{"", "[2001:db8:1:2:ffff::1]:40001", "2001:db8:1:2::/64"},
		{"", "[fe80::1%eth0]:40001", "fe80::/64"},
		{"", "[::ffff:10.0.0.7]:40001", "::ffff:10.0.0.7"},
		{"", "@", "@"},
		{"10.0.0.7", "", "key 10.0.0.7"},
	} {
		x := &exchange{key: c.key, r: &http.Request{RemoteAddr: c.remote}}
		if got := x.client(); got != c.want {
			t.Errorf("key %q from %q is client %q, want %q", c.key, c.remote, got, c.want)
		}
	}
}
