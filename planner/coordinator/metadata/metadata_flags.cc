#include "planner/coordinator/metadata/metadata_flags.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status_macros.h"
#include "planner/coordinator/etcd/election.h"
#include "security/server_security.h"

namespace hotbed {
namespace {

absl::Status CheckEtcdFiles(const MetadataFlags& flags) {
  const TlsFiles& files = flags.etcd_files;
  if (files.certificate.empty() != files.key.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("--etcd-cert and --etcd-key belong together; ",
                                                   files.key.empty() ? "--etcd-key" : "--etcd-cert",
                                                   " is missing"));
  }
  if (files.any() && files.authority.empty()) {
    return absl::InvalidArgumentError(
        "--etcd-cert and --etcd-key are given without --etcd-ca: the authority that signs etcd's "
        "certificates");
  }
  for (const std::string& path : {files.authority, files.certificate}) {
    if (!path.empty()) HOTBED_RETURN_IF_ERROR(ReadCertificates(path).status());
  }
  if (!files.key.empty()) HOTBED_RETURN_IF_ERROR(FileSystem::Real()->ReadAll(files.key).status());
  if (flags.etcd_user.empty() != flags.etcd_password_file.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--etcd-user and --etcd-password-file belong together; ",
        flags.etcd_user.empty() ? "--etcd-user" : "--etcd-password-file", " is missing"));
  }
  if (!flags.etcd_password_file.empty()) {
    HOTBED_RETURN_IF_ERROR(FileSystem::Real()->ReadAll(flags.etcd_password_file).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<EtcdOptions> EtcdOptionsOf(const MetadataFlags& flags, bool plain_allowed) {
  const absl::StatusOr<EtcdAddress> address = ParseEtcdAddress(flags.metadata);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--metadata=", address.status().message(),
                                                   ", and the embedded store by "
                                                   "--metadata=embedded"));
  }
  HOTBED_RETURN_IF_ERROR(CheckEtcdFiles(flags));
  for (const std::string& member : address->members) {
    if (flags.etcd_files.any() || plain_allowed || !ListensWide(member)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("--metadata names ", member,
                     ", which is beyond loopback: give --etcd-ca (and "
                     "--etcd-cert and --etcd-key, where etcd asks for a certificate), or "
                     "--secure=off-beyond-loopback for plaintext"));
  }
  return EtcdOptions{.address = *address,
                     .user = flags.etcd_user,
                     .password_file = flags.etcd_password_file,
                     .files = flags.etcd_files};
}

}  // namespace

void AddMetadataFlags(ConfigSchema* schema, MetadataFlags* flags) {
  schema->Add("metadata", &flags->metadata, "WHERE",
              "Where the metadata are: embedded, in --data-dir; or in etcd, as "
              "etcd://HOST:2379,HOST:2379 with all its members, and behind them /PREFIX for the "
              "keys if the etcd is shared.");
  schema->Add("data-dir", &flags->data_dir, "directory",
              "Holds the embedded metadata store; created if it does not exist. Not used with "
              "etcd.");
  schema->Add("etcd-ca", &flags->etcd_files.authority, "FILE",
              "Certificates in PEM of the authority that signs etcd's; with it, etcd is called by "
              "TLS. It and the next two are read again when they change.");
  schema->Add("etcd-cert", &flags->etcd_files.certificate, "FILE",
              "The certificate in PEM that is shown to etcd.");
  schema->Add("etcd-key", &flags->etcd_files.key, "FILE", "Its private key in PEM.");
  schema->Add("etcd-user", &flags->etcd_user, "NAME", "The user to log in to etcd as.");
  schema->Add("etcd-password-file", &flags->etcd_password_file, "FILE",
              "Holds the user's password; read again at each login.");
}

absl::StatusOr<Metadata> OpenMetadata(const MetadataFlags& flags, bool plain_allowed,
                                      FileSystem* files) {
  Metadata metadata;
  if (flags.metadata == "embedded") {
    HOTBED_ASSIGN_OR_RETURN(metadata.dir, OpenDataDir(flags.data_dir, files));
    metadata.place = absl::StrCat("data directory ", flags.data_dir);
    return metadata;
  }
  HOTBED_ASSIGN_OR_RETURN(EtcdOptions options, EtcdOptionsOf(flags, plain_allowed));
  metadata.place = flags.metadata;
  EtcdOptions quick = options;
  quick.timeout = absl::Seconds(Election::kLeaseS) / 2;
  metadata.etcd = std::make_unique<EtcdClient>(std::move(options));
  metadata.for_election = std::make_unique<EtcdClient>(std::move(quick));
  metadata.in_etcd = std::make_unique<EtcdMetaStore>(metadata.etcd.get());
  return metadata;
}

}  // namespace hotbed
