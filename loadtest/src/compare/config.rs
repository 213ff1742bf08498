//! Configuration files of the proxies that have no command line for it.

use std::io;
use std::path::{Path, PathBuf};

/// What a proxy is started with, as far as its configuration is concerned.
pub(super) struct Setup<'a> {
    pub program: &'a Path,
    pub port: u16,
    /// `http://host:port` of each engine.
    pub engines: &'a [String],
    /// Where its files go; exists.
    pub directory: &'a Path,
}

/// A command line and the file it reads.
pub(super) struct Configured {
    pub words: Vec<String>,
    pub text: String,
}

impl Setup<'_> {
    /// One worker, keep-alive on both sides, answers passed on as they come.
    pub fn nginx(&self) -> io::Result<Configured> {
        let directory = self.directory.canonicalize()?;
        let at = |name: &str| directory.join(name).display().to_string();
        let servers = self.each(|_, address| format!("        server {address};\n"));
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .iter()
            .map(|kind| format!("    {kind}_temp_path {};\n", at(&format!("nginx-{kind}"))))
            .collect();
        // Without module paths: nothing beyond the core and the HTTP proxy is needed.
        let text = format!(
            "worker_processes 1;\n\
             daemon off;\n\
             pid {pid};\n\
             error_log stderr warn;\n\
             events {{ worker_connections 8192; }}\n\
             http {{\n\
             {temporary}\
             \x20   access_log off;\n\
             \x20   keepalive_requests 1000000000;\n\
             \x20   client_max_body_size 512m;\n\
             \x20   client_body_buffer_size 1m;\n\
             \x20   upstream engines {{\n\
             {servers}\
             \x20       keepalive 512;\n\
             \x20       keepalive_requests 1000000000;\n\
             \x20   }}\n\
             \x20   server {{\n\
             \x20       listen 127.0.0.1:{port};\n\
             \x20       location / {{\n\
             \x20           proxy_pass http://engines;\n\
             \x20           proxy_http_version 1.1;\n\
             \x20           proxy_set_header Connection \"\";\n\
             \x20           proxy_buffering off;\n\
             \x20           proxy_read_timeout 1800s;\n\
             \x20       }}\n\
             \x20   }}\n\
             }}\n",
            pid = at("nginx.pid"),
            port = self.port,
        );
        let file = self.write("nginx.conf", &text)?;
        let prefix = directory.display().to_string();
        Ok(self.configured(&["-p", &prefix, "-e", "stderr", "-c", &file], text))
    }

    /// One thread, requests in turn. Without `http-no-delay` it holds the first event of a stream
    /// back for 200 ms.
    pub fn haproxy(&self) -> io::Result<Configured> {
        let servers = self.each(|index, address| format!("    server engine{index} {address}\n"));
        let text = format!(
            "global\n\
             \x20   nbthread 1\n\
             \x20   maxconn 8192\n\
             defaults\n\
             \x20   mode http\n\
             \x20   option http-keep-alive\n\
             \x20   option http-no-delay\n\
             \x20   http-reuse always\n\
             \x20   timeout connect 5s\n\
             \x20   timeout client 1800s\n\
             \x20   timeout server 1800s\n\
             frontend gateway\n\
             \x20   bind 127.0.0.1:{port}\n\
             \x20   default_backend engines\n\
             backend engines\n\
             \x20   balance roundrobin\n\
             {servers}",
            port = self.port,
        );
        let file = self.write("haproxy.cfg", &text)?;
        Ok(self.configured(&["-db", "-f", &file], text))
    }

    /// One worker thread, requests in turn, no time limit on a stream.
    pub fn envoy(&self) -> io::Result<Configured> {
        let endpoints = self.each(|_, address| {
            let (host, port) = address.rsplit_once(':').unwrap_or((address, "80"));
            format!(
                "        - endpoint: {{ address: {{ socket_address: {{ address: {host}, \
                 port_value: {port} }} }} }}\n"
            )
        });
        let text = format!(
            "static_resources:\n\
             \x20 listeners:\n\
             \x20 - name: gateway\n\
             \x20   address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}\n\
             \x20   filter_chains:\n\
             \x20   - filters:\n\
             \x20     - name: envoy.filters.network.http_connection_manager\n\
             \x20       typed_config:\n\
             \x20         \"@type\": type.googleapis.com/envoy.extensions.filters.network.\
             http_connection_manager.v3.HttpConnectionManager\n\
             \x20         stat_prefix: gateway\n\
             \x20         stream_idle_timeout: 0s\n\
             \x20         route_config:\n\
             \x20           virtual_hosts:\n\
             \x20           - name: all\n\
             \x20             domains: [\"*\"]\n\
             \x20             routes:\n\
             \x20             - match: {{ prefix: \"/\" }}\n\
             \x20               route: {{ cluster: engines, timeout: 0s }}\n\
             \x20         http_filters:\n\
             \x20         - name: envoy.filters.http.router\n\
             \x20           typed_config:\n\
             \x20             \"@type\": type.googleapis.com/envoy.extensions.filters.http.router.\
             v3.Router\n\
             \x20 clusters:\n\
             \x20 - name: engines\n\
             \x20   type: STATIC\n\
             \x20   lb_policy: ROUND_ROBIN\n\
             \x20   connect_timeout: 5s\n\
             \x20   load_assignment:\n\
             \x20     cluster_name: engines\n\
             \x20     endpoints:\n\
             \x20     - lb_endpoints:\n\
             {endpoints}",
            port = self.port,
        );
        let file = self.write("envoy.yaml", &text)?;
        let words =
            ["-c", &file, "--concurrency", "1", "--log-level", "error", "--disable-hot-restart"];
        Ok(self.configured(&words, text))
    }

    /// A line per engine, from its number and `host:port`.
    fn each(&self, line: impl Fn(usize, &str) -> String) -> String {
        let addresses = self.engines.iter().map(|url| url.trim_start_matches("http://"));
        addresses.enumerate().map(|(index, address)| line(index, address)).collect()
    }

    fn write(&self, name: &str, text: &str) -> io::Result<String> {
        let path: PathBuf = self.directory.canonicalize()?.join(name);
        std::fs::write(&path, text)?;
        Ok(path.display().to_string())
    }

    fn configured(&self, arguments: &[&str], text: String) -> Configured {
        let program = self.program.display().to_string();
        let arguments = arguments.iter().map(|word| word.to_string());
        Configured { words: std::iter::once(program).chain(arguments).collect(), text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_engine_is_in_every_configuration() {
        let directory = std::env::temp_dir().join(format!("smg-config-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let engines = ["http://127.0.0.1:9100".to_owned(), "http://127.0.0.1:9101".to_owned()];
        let program = Path::new("/opt/proxy");
        let setup = Setup { program, port: 8123, engines: &engines, directory: &directory };
        for (configured, server) in [
            (setup.nginx().unwrap(), "server 127.0.0.1:9101;"),
            (setup.haproxy().unwrap(), "server engine1 127.0.0.1:9101\n"),
            (setup.envoy().unwrap(), "{ address: 127.0.0.1, port_value: 9101 }"),
        ] {
            assert!(configured.text.contains(server), "{}", configured.text);
            assert!(configured.text.contains("8123") && configured.text.contains("9100"));
            assert_eq!(configured.words[0], "/opt/proxy");
            let file = configured.words.iter().find(|word| {
                word.starts_with('/') && word.contains("smg-config") && Path::new(word).is_file()
            });
            assert_eq!(std::fs::read_to_string(file.unwrap()).unwrap(), configured.text);
        }
        let _ = std::fs::remove_dir_all(directory);
    }
}
