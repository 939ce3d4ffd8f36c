//! The kernel's numbers for what we say and hear, under the kernel's own names.

pub(crate) const RTM_NEWLINK: u16 = 16;
pub(crate) const RTM_DELLINK: u16 = 17;
pub(crate) const RTM_GETLINK: u16 = 18;
pub(crate) const RTM_SETLINK: u16 = 19;
pub(crate) const RTM_NEWADDR: u16 = 20;
pub(crate) const RTM_DELADDR: u16 = 21;
pub(crate) const RTM_GETADDR: u16 = 22;
pub(crate) const RTM_NEWROUTE: u16 = 24;
pub(crate) const RTM_DELROUTE: u16 = 25;
pub(crate) const RTM_GETROUTE: u16 = 26;
pub(crate) const RTM_NEWNEIGH: u16 = 28;
pub(crate) const RTM_DELNEIGH: u16 = 29;
pub(crate) const RTM_GETNEIGH: u16 = 30;
pub(crate) const RTM_NEWNEIGHTBL: u16 = 64;
pub(crate) const RTM_GETNEIGHTBL: u16 = 66;
pub(crate) const RTM_SETNEIGHTBL: u16 = 67;
pub(crate) const RTM_GETNSID: u16 = 90;
pub(crate) const RTM_NEWNETCONF: u16 = 80;
pub(crate) const RTM_GETNETCONF: u16 = 82;

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_ECHO: u16 = 0x8;
pub(crate) const NLM_F_DUMP: u16 = 0x300;
pub(crate) const NLM_F_REPLACE: u16 = 0x100;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
/// In what the kernel sends.
pub(crate) const NLM_F_DUMP_INTR: u16 = 0x10;
pub(crate) const NLM_F_CAPPED: u16 = 0x100;
pub(crate) const NLM_F_ACK_TLVS: u16 = 0x200;

pub(crate) const AF_UNSPEC: u8 = 0;
pub(crate) const AF_INET: u8 = 2;
pub(crate) const AF_INET6: u8 = 10;
pub(crate) const AF_BRIDGE: u8 = 7;

pub(crate) const IFF_UP: u32 = 0x1;
pub(crate) const IF_OPER_UP: u8 = 6;
pub(crate) const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
pub(crate) const IFLA_LINK: u16 = 5;
pub(crate) const IFLA_MASTER: u16 = 10;
pub(crate) const IFLA_LINK_NETNSID: u16 = 37;
pub(crate) const IFLA_OPERSTATE: u16 = 16;
pub(crate) const IFLA_LINKINFO: u16 = 18;
pub(crate) const IFLA_IFALIAS: u16 = 20;
pub(crate) const IFLA_AF_SPEC: u16 = 26;
pub(crate) const IFLA_GROUP: u16 = 27;
pub(crate) const IFLA_NET_NS_FD: u16 = 28;
pub(crate) const IFLA_EXT_MASK: u16 = 29;
pub(crate) const IFLA_NUM_TX_QUEUES: u16 = 31;
pub(crate) const IFLA_NUM_RX_QUEUES: u16 = 32;
pub(crate) const IFLA_INFO_KIND: u16 = 1;
pub(crate) const IFLA_INFO_DATA: u16 = 2;
pub(crate) const VETH_INFO_PEER: u16 = 1;
pub(crate) const IFLA_VXLAN_ID: u16 = 1;
pub(crate) const IFLA_VXLAN_LINK: u16 = 3;
pub(crate) const IFLA_VXLAN_LOCAL: u16 = 4;
pub(crate) const IFLA_VXLAN_LEARNING: u16 = 7;
pub(crate) const IFLA_VXLAN_PORT: u16 = 15;
pub(crate) const IFLA_VXLAN_LOCAL6: u16 = 17;
pub(crate) const IFLA_INET_CONF: u16 = 1;
pub(crate) const IFLA_INET6_CONF: u16 = 2;
pub(crate) const RTEXT_FILTER_SKIP_STATS: u32 = 8;

pub(crate) const IFA_ADDRESS: u16 = 1;
pub(crate) const IFA_LOCAL: u16 = 2;
pub(crate) const IFA_F_SECONDARY: u8 = 0x1;
pub(crate) const IFA_F_NODAD: u8 = 0x2;
pub(crate) const IFA_F_DADFAILED: u8 = 0x8;
pub(crate) const IFA_F_TENTATIVE: u8 = 0x40;

pub(crate) const RTA_DST: u16 = 1;
pub(crate) const RTA_OIF: u16 = 4;
pub(crate) const RTA_GATEWAY: u16 = 5;
pub(crate) const RTA_PRIORITY: u16 = 6;
pub(crate) const RTA_PREFSRC: u16 = 7;
pub(crate) const RTA_METRICS: u16 = 8;
pub(crate) const RTA_MULTIPATH: u16 = 9;
pub(crate) const RTA_VIA: u16 = 18;
pub(crate) const RTA_ENCAP: u16 = 22;
pub(crate) const RTA_NH_ID: u16 = 30;
pub(crate) const RTA_TABLE: u16 = 15;
pub(crate) const RT_TABLE_MAIN: u8 = 254;
pub(crate) const RTN_LOCAL: u8 = 2;
pub(crate) const RT_SCOPE_UNIVERSE: u8 = 0;
pub(crate) const RT_SCOPE_LINK: u8 = 253;
/// When deleting: any.
pub(crate) const RT_SCOPE_NOWHERE: u8 = 255;
/// The route that a packet to this address would take, as it stands in the table.
pub(crate) const RTM_F_FIB_MATCH: u32 = 0x2000;
/// Made by the kernel for one destination out of a route.
pub(crate) const RTM_F_CLONED: u32 = 0x200;

pub(crate) const RTNH_F_DEAD: u32 = 0x1;
pub(crate) const RTNH_F_ONLINK: u32 = 0x4;
pub(crate) const RTNH_F_LINKDOWN: u32 = 0x10;

pub(crate) const NTF_SELF: u8 = 0x2;
pub(crate) const NTF_PROXY: u8 = 0x8;
pub(crate) const NDA_DST: u16 = 1;
pub(crate) const NDA_LLADDR: u16 = 2;
pub(crate) const NDA_IFINDEX: u16 = 8;
pub(crate) const NUD_PERMANENT: u16 = 0x80;
pub(crate) const NDTA_NAME: u16 = 1;
pub(crate) const NDTA_PARMS: u16 = 6;
pub(crate) const NDTPA_IFINDEX: u16 = 1;
pub(crate) const NDTPA_PROXY_DELAY: u16 = 13;

pub(crate) const NETNSA_NSID: u16 = 1;
pub(crate) const NETNSA_FD: u16 = 3;

pub(crate) const NETCONFA_IFINDEX: u16 = 1;
pub(crate) const NETCONFA_FORWARDING: u16 = 2;
pub(crate) const NETCONFA_RP_FILTER: u16 = 3;
pub(crate) const NETCONFA_IFINDEX_ALL: u32 = u32::MAX;
pub(crate) const NETCONFA_IFINDEX_DEFAULT: u32 = u32::MAX - 1;

pub(crate) const RTNLGRP_LINK: u32 = 1;
pub(crate) const RTNLGRP_NEIGH: u32 = 3;
pub(crate) const RTNLGRP_IPV4_IFADDR: u32 = 5;
pub(crate) const RTNLGRP_IPV4_ROUTE: u32 = 7;
pub(crate) const RTNLGRP_IPV6_IFADDR: u32 = 9;
pub(crate) const RTNLGRP_IPV6_ROUTE: u32 = 11;
pub(crate) const RTNLGRP_IPV4_NETCONF: u32 = 24;
pub(crate) const RTNLGRP_IPV6_NETCONF: u32 = 25;
