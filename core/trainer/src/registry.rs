//! shim
use crate::Error;
use crate::config::Section;
use espalier_interface::abi::*;
use espalier_interface::*;
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::result::Result;
#[derive(Clone, Debug, serde::Serialize)]
pub struct PluginIdentity {
    pub component: String,
    pub plugin: String,
    pub version: String,
    pub file: Option<PathBuf>,
}
pub struct SearchPath;
impl SearchPath {
    pub fn new(_: &[PathBuf], _: Option<&Path>) -> Self {
        SearchPath
    }
}
pub struct Registry {
    found: Vec<(&'static PluginRoot, descriptor::Descriptor)>,
}
#[allow(unsafe_code)]
impl Registry {
    pub fn discover(_: &SearchPath) -> Self {
        let found = linked()
            .map(|root| {
                let root = unsafe { &*root() };
                (root, descriptor::read(root.descriptor.as_slice()).unwrap())
            })
            .collect();
        Registry { found }
    }
    fn find(
        &self,
        name: &str,
    ) -> Result<
        (
            &'static PluginRoot,
            descriptor::ComponentDescriptor,
            PluginIdentity,
        ),
        PluginError,
    > {
        for (root, d) in &self.found {
            for c in &d.components {
                if c.name == name {
                    return Ok((
                        root,
                        c.clone(),
                        PluginIdentity {
                            component: c.name.clone(),
                            plugin: d.name.clone(),
                            version: d.version.clone(),
                            file: None,
                        },
                    ));
                }
            }
        }
        Err(PluginError::invalid(format!("no {name}")))
    }
    fn make(
        &self,
        name: &str,
        options: &Section,
        services: &'static dyn Services,
    ) -> Result<(&'static PluginRoot, InstanceHandle, PluginIdentity), PluginError> {
        let (root, c, id) = self.find(name)?;
        let mut all = serde_json::Map::new();
        for o in &c.options {
            all.insert(o.name.clone(), o.default.clone());
        }
        for (k, v) in options {
            all.insert(k.clone(), v.clone());
        }
        let table = unsafe {
            *(root.query)("component".into(), 1)
                .table
                .cast::<ComponentTable>()
        };
        Ok((
            root,
            InstanceHandle::create(table, root.context, name, &Options(all), services)?,
            id,
        ))
    }
    pub fn roles_of(&self, names: &[String]) -> Result<HashMap<Role, String>, Error> {
        let mut roles = HashMap::new();
        for n in names {
            let (_, c, _) = self.find(n)?;
            roles.insert(Role::from_name(&c.role).unwrap(), n.clone());
        }
        Ok(roles)
    }
    pub fn family_for(&self, t: &str) -> Result<String, Error> {
        Ok(t.to_owned())
    }
    pub fn adapter_for(&self, _: &str) -> Result<String, Error> {
        Ok("lora".to_owned())
    }
    pub fn create_family(
        &self,
        n: &str,
        o: &Section,
        s: &'static dyn Services,
    ) -> Result<(Box<dyn Family>, PluginIdentity), Error> {
        let (_, h, i) = self.make(n, o, s)?;
        Ok((Box::new(FamilyProxy(h)), i))
    }
    pub fn create_adapter(
        &self,
        n: &str,
        o: &Section,
        s: &'static dyn Services,
    ) -> Result<(Box<dyn Adapter>, PluginIdentity), Error> {
        let (_, h, i) = self.make(n, o, s)?;
        Ok((Box::new(AdapterProxy(h)), i))
    }
    pub fn create_sharding(
        &self,
        n: &str,
        o: &Section,
        s: &'static dyn Services,
    ) -> Result<(Box<dyn Sharding>, PluginIdentity), Error> {
        let (_, h, i) = self.make(n, o, s)?;
        Ok((Box::new(ShardingProxy(h)), i))
    }
    pub fn create_quantizer(
        &self,
        n: &str,
        o: &Section,
        s: &'static dyn Services,
    ) -> Result<(Box<dyn Quantizer>, PluginIdentity), Error> {
        let (r, h, i) = self.make(n, o, s)?;
        let t = unsafe {
            *(r.query)("quantizer".into(), 1)
                .table
                .cast::<QuantizerTable>()
        };
        Ok((Box::new(QuantizerProxy::new(h, t)), i))
    }
    pub fn create_backend(
        &self,
        n: &str,
        o: &Section,
        s: &'static dyn Services,
    ) -> Result<(Box<dyn Backend>, PluginIdentity), Error> {
        let (r, h, i) = self.make(n, o, s)?;
        let t = unsafe { *(r.query)("backend".into(), 1).table.cast::<BackendTable>() };
        Ok((Box::new(BackendProxy::new(h, t)), i))
    }
}
